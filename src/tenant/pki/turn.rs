//! One writer in a key directory at a time: components prepare their starts while the daemon rotates.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

static TURNS: Mutex<BTreeMap<PathBuf, Arc<Mutex<()>>>> = Mutex::new(BTreeMap::new());

/// Does `work` when nobody else works in `dir`. Blocking, for as long as a few files take.
pub(super) fn take<T>(dir: &Path, work: impl FnOnce() -> T) -> T {
    let turn = {
        let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody holds or waits for those of directories that are done.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(dir.to_owned()).or_default())
    };
    let _held = turn.lock().unwrap_or_else(PoisonError::into_inner);
    work()
}
