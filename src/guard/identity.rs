//! A tenant's claim on its datastore, as it lies in `identity.json` and in the row of the tenant database.

use crate::one_line::one_line;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Which cluster something belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Owner {
    pub cluster: String,
    /// Unique for the life of the cluster: a cluster deleted and created again under its old name is another one.
    pub uid: String,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cluster {} (uid {})", self.cluster, self.uid)
    }
}

/// How far a first boot, an adoption or a restore came. Order: row `claimed` (or `adopted`), file `created`, row `settled`, file `settled`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Only in the row: no file may exist yet.
    Claimed,
    /// Only in the row: an operator has overridden a refusal, and the file is to follow.
    Adopted,
    /// Only in the file: an operator restored a backup as another cluster, and the row is to follow.
    Restored,
    /// Only in the file: the row was there when it was written.
    Created,
    /// Both were written. From here on a missing one is a loss, not a crash in between.
    Settled,
}

/// What was true when the claim was made. Holds no secret: fingerprints, paths and names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub owner: Owner,
    /// Raised by every adoption and restore; an older copy of one half shows itself by it.
    pub epoch: u64,
    pub phase: Phase,
    /// `pg_control_system()`: one initdb, one number. A copy of the files keeps it, a dump does not.
    pub system_identifier: String,
    /// SHA-256 of each CA certificate (DER), by its name. One that did not exist yet is added once it does.
    pub authorities: BTreeMap<String, String>,
    pub data_dir: PathBuf,
    pub data_dir_inode: u64,
    /// `None` where the host has none; then nothing is concluded from it.
    pub machine_id: Option<String>,
    /// Of an `adopted` row: the fingerprint of the file it overrides; `None` where there was no file. Of a `restored` file: that
    /// of the row it overrides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<String>,
}

impl Record {
    /// SHA-256 over all of it.
    pub fn fingerprint(&self) -> String {
        // A record is plain data and always has a JSON.
        hex::encode(Sha256::digest(serde_json::to_vec(self).unwrap_or_default()))
    }

    /// A record as it was written, from the file or from the row; the error is the reason. It goes into refusals whole, so
    /// one that Berth cannot have written, because it would break their line, is none.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let record: Self = serde_json::from_slice(bytes).map_err(one_line)?;
        if record.texts().any(|text| text.contains(char::is_control)) {
            return Err("it holds a control character".to_owned());
        }
        Ok(record)
    }

    fn texts(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let Self { owner, system_identifier, authorities, data_dir, machine_id, replaces, .. } = self;
        let named = authorities.iter().flat_map(|(name, fingerprint)| [name, fingerprint]);
        let texts = [&owner.cluster, &owner.uid, system_identifier]
            .into_iter()
            .chain(named)
            .chain(machine_id)
            .chain(replaces);
        texts.map(|text| text.as_str().into()).chain([data_dir.to_string_lossy()])
    }
}
