//! What a process may still start: a shared lock on a file for each asset, from when its path is handed out until the
//! process ends, however it ends.
//!
//! The file lies in a directory that only the daemon's account can enter: whoever can open a file can lock it, and a tenant that
//! locked an asset would keep the next daemon from starting. `/proc` shows what runs, but not what a daemon will start again in a moment. The lock is taken while the store is open,
//! and gc looks while the store is open, so nothing comes between.

use super::record::{at, set_mode};
use super::store::StoreError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Beside the assets, in the store's own directory.
pub(super) const DIR: &str = "held";

/// Dropping it ends the hold.
#[derive(Debug)]
pub(super) struct Hold {
    file: File,
}

impl Drop for Hold {
    fn drop(&mut self) {
        // A child that is just being born has a copy of the descriptor until its exec. An error leaves it to the end of the process.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

impl Hold {
    /// Of the asset in `dir`, which lies in a store. Blocking.
    pub(super) fn on(dir: &Path) -> Result<Self, StoreError> {
        let path = place(dir);
        let file = lock_file(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(Self { file }),
            // Only gc locks it otherwise, and never while the store is open in another process.
            Err(errno) => Err(at("lock", &path)(errno.into()).into()),
        }
    }
}

/// Whether some process holds the asset in `dir`. Blocking.
pub(super) fn is_held(dir: &Path) -> Result<bool, StoreError> {
    let path = place(dir);
    let file = lock_file(&path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => flock(&file, FlockOperation::Unlock)
            .map(|()| false)
            .map_err(|errno| at("unlock", &path)(errno.into()).into()),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(errno) => Err(at("lock", &path)(errno.into()).into()),
    }
}

/// `ROOT/held/DIGEST` for `ROOT/sha256/DIGEST`.
fn place(dir: &Path) -> PathBuf {
    let root = dir.parent().and_then(Path::parent).unwrap_or(dir);
    root.join(DIR).join(dir.file_name().unwrap_or_default())
}

/// A file to lock, which nobody but its owner can open. Blocking.
pub(super) fn lock_file(path: &Path) -> Result<File, StoreError> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(path).map_err(at("open", path))?;
    // One of an earlier Berth may be open to all.
    set_mode(path, 0o600)?;
    Ok(file)
}

/// Holds of this very process, one for each asset.
static FOR_LIFE: Mutex<BTreeMap<PathBuf, Hold>> = Mutex::new(BTreeMap::new());

/// Holds the asset in `dir` until this process ends. Blocking.
pub(super) fn for_life(dir: &Path) -> Result<(), StoreError> {
    let mut held = FOR_LIFE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Entry::Vacant(free) = held.entry(dir.to_owned()) {
        free.insert(Hold::on(dir)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_asset_is_held_as_long_as_anybody_holds_it_and_by_nobody_elses_lock() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("sha256/0123");
        for private in [&dir, &root.path().join(DIR)] {
            std::fs::create_dir_all(private).unwrap();
        }
        // As a tenant could: the assets are open to all.
        let tenant = File::open(&dir).unwrap();
        flock(&tenant, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(!is_held(&dir).unwrap());
        let (one, other) = (Hold::on(&dir).unwrap(), Hold::on(&dir).unwrap());
        drop(one);
        assert!(is_held(&dir).unwrap());
        drop(other);
        assert!(!is_held(&dir).unwrap());
        let mode = std::fs::metadata(place(&dir)).unwrap().permissions();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
    }
}
