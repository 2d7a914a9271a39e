//! What a process may still start: a shared lock on the directory of each asset, from when its path is handed out until the
//! process ends, however it ends.
//!
//! `/proc` shows what runs, but not what a daemon will start again in a moment. The lock is taken while the store is open,
//! and gc looks while the store is open, so nothing comes between.

use super::record::at;
use super::store::StoreError;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Dropping it ends the hold.
#[derive(Debug)]
pub(super) struct Hold {
    dir: File,
}

impl Drop for Hold {
    fn drop(&mut self) {
        // A child that is just being born has a copy of the descriptor until its exec. An error leaves it to the end of the process.
        let _ = flock(&self.dir, FlockOperation::Unlock);
    }
}

impl Hold {
    /// Of the asset in `dir`. Blocking.
    pub(super) fn on(dir: &Path) -> Result<Self, StoreError> {
        let file = crate::files::trusted::open(dir).map_err(at("open", dir))?;
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(Self { dir: file }),
            // Only gc locks it otherwise, and never while the store is open in another process.
            Err(errno) => Err(at("lock", dir)(errno.into()).into()),
        }
    }
}

/// Whether some process holds the asset in `dir`. Blocking.
pub(super) fn is_held(dir: &Path) -> Result<bool, StoreError> {
    let file = crate::files::trusted::open(dir).map_err(at("open", dir))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => flock(&file, FlockOperation::Unlock)
            .map(|()| false)
            .map_err(|errno| at("unlock", dir)(errno.into()).into()),
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(errno) => Err(at("lock", dir)(errno.into()).into()),
    }
}

/// Holds of this very process.
static FOR_LIFE: Mutex<Vec<Hold>> = Mutex::new(Vec::new());

/// Holds the asset in `dir` until this process ends. Blocking.
pub(super) fn for_life(dir: &Path) -> Result<(), StoreError> {
    let hold = Hold::on(dir)?;
    FOR_LIFE.lock().unwrap_or_else(PoisonError::into_inner).push(hold);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_asset_is_held_as_long_as_anybody_holds_it() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_held(dir.path()).unwrap());
        let (one, other) = (Hold::on(dir.path()).unwrap(), Hold::on(dir.path()).unwrap());
        drop(one);
        assert!(is_held(dir.path()).unwrap());
        drop(other);
        assert!(!is_held(dir.path()).unwrap());
    }
}
