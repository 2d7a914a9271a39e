//! `berth cluster restore` and the identity: a backup's data are another cluster's, and get a new owner by that command only.
//!
//! The file is written first, beside the data while they have no place yet. It names the row it overrides; the first check
//! then finishes the restore as it finishes an adoption. A copy that went any other way is refused as ever.

use super::evidence::{OnDisk, on_disk};
use super::identity::{Owner, Phase, Record};
use std::path::Path;
use tokio_postgres::Client;

impl Record {
    /// The identity of data that were unpacked in `staging` and will be moved to `place`, as `owner`'s. `of`: the row in
    /// their database. Blocking.
    pub fn restored(
        staging: &Path,
        place: &Path,
        owner: Owner,
        of: &Self,
        machine_id: &Path,
    ) -> Result<Self, String> {
        let OnDisk { authorities, data_dir_inode, machine_id, .. } =
            on_disk(staging, machine_id).map_err(|error| error.to_string())?;
        let (Some(above), Some(name)) = (place.parent(), place.file_name()) else {
            return Err(format!("{} is no place for a cluster", place.display()));
        };
        let above = above.canonicalize().map_err(|error| format!("look at {}: {error}", above.display()))?;
        Ok(Self {
            owner,
            epoch: of.epoch.saturating_add(1),
            phase: Phase::Restored,
            system_identifier: of.system_identifier.clone(),
            authorities,
            data_dir: above.join(name),
            data_dir_inode,
            machine_id,
            replaces: Some(of.fingerprint()),
        })
    }
}

/// The row in the database that `client` is connected to: kine's.
pub async fn recorded(client: &Client) -> Result<Record, String> {
    let row = client.query_one("SELECT record::text FROM berth.identity", &[]).await;
    let row = row.map_err(|error| format!("the identity of its database cannot be read: {error}"))?;
    Record::parse(row.get::<_, &str>(0).as_bytes())
        .map_err(|reason| format!("the row berth.identity is not a record of the identity guard: {reason}"))
}
