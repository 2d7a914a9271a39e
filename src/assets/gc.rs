//! Removes the assets nobody needs, extracted and packed. Whatever a process runs from, a daemon may start again, a
//! configuration names or a catalogue asks for stays. Blocking throughout.

use super::record::Record;
use super::store::{Store, StoreError};
use super::usage::{Usage, Use};
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// One asset, as it lies in the store.
#[derive(Debug, Clone, Serialize)]
pub struct Asset {
    /// `None` where its record is torn.
    pub component: Option<String>,
    pub version: Option<String>,
    pub digest: String,
    /// Bytes of its files, where it is extracted.
    pub size: Option<u64>,
    /// Bytes it takes at rest, where it is packed.
    pub packed: Option<u64>,
    /// Why it stays; without one, gc removes it.
    pub needed: Option<Use>,
}

/// Everything in the store, with who needs it.
pub fn assets(store: &Store, usage: &Usage) -> Result<Vec<Asset>, StoreError> {
    let at_rest = store.at_rest()?;
    let mut digests = BTreeSet::new();
    digests.extend(store.extracted()?);
    digests.extend(at_rest.iter().map(|(path, _)| digest_of(path)));
    let mut found = Vec::new();
    for digest in digests {
        let dir = store.path(&digest);
        let extracted = store.records().find(|record| record.digest == digest);
        let resting = at_rest.iter().find(|(path, _)| digest_of(path) == digest);
        let record: Option<&Record> = extracted.or(resting.and_then(|(_, record)| record.as_ref().ok()));
        let packed = resting.and_then(|(path, _)| path.metadata().ok()).map(|meta| meta.len());
        found.push(Asset {
            component: record.map(|record| record.component.clone()),
            version: record.map(|record| record.version.clone()),
            size: dir.is_dir().then(|| extracted.map_or(0, Record::size)),
            packed,
            needed: usage.of(&dir, record)?,
            digest,
        });
    }
    found.sort_by(|one, other| (&one.component, &one.version).cmp(&(&other.component, &other.version)));
    Ok(found)
}

/// Removes what is not needed of `assets`. Each is whole or gone at any moment.
pub fn collect(store: &Store, assets: &[Asset]) -> Result<Vec<Asset>, StoreError> {
    let mut removed = Vec::new();
    for asset in assets.iter().filter(|asset| asset.needed.is_none()) {
        store.discard(&asset.digest)?;
        removed.push(asset.clone());
    }
    Ok(removed)
}

fn digest_of(packed: &Path) -> String {
    let name = PathBuf::from(packed.file_name().unwrap_or_default()).to_string_lossy().into_owned();
    name.strip_suffix(super::packed::ENDING).unwrap_or(&name).to_owned()
}

#[cfg(test)]
#[path = "gc_tests.rs"]
mod tests;
