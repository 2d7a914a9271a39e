//! The children this process waits for itself, so that the orphan collector leaves their exit statuses alone.
//!
//! Process-wide because wait(2) is. The spawner and tools register here; [`super::orphans`] asks.

use super::birth::{Birth, BirthError, Newborn};
use super::raw;
use std::collections::HashSet;
use std::sync::{LazyLock, Mutex, PoisonError, RwLock, TryLockError};

/// Held shared from fork to registration, exclusively by the collector: it never sees a child that is not yet known.
static BIRTHS: RwLock<()> = RwLock::new(());
static KNOWN: LazyLock<Mutex<HashSet<u32>>> = LazyLock::new(Mutex::default);

/// Bears a child and registers it. Blocking until its program is executed or has failed to be.
pub(super) fn bear(birth: &Birth<'_>) -> Result<Newborn, BirthError> {
    register(|| raw::bear(birth))
}

pub(super) fn register<E>(bear: impl FnOnce() -> Result<Newborn, E>) -> Result<Newborn, E> {
    let _birth = BIRTHS.read().unwrap_or_else(PoisonError::into_inner);
    let newborn = bear()?;
    know(newborn.pid);
    Ok(newborn)
}

/// Registers an adopted process, which is a child when the daemon was replaced by exec.
pub(super) fn know(pid: u32) {
    KNOWN.lock().unwrap_or_else(PoisonError::into_inner).insert(pid);
}

/// Runs `wait`, which frees the pid, and forgets it. Under one lock: a child that is born with the freed pid registers after.
pub(super) fn forget<T>(pid: u32, wait: impl FnOnce() -> T) -> T {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let result = wait();
    known.remove(&pid);
    result
}

/// The same, unless the lock is taken: then nothing is done.
pub(super) fn try_forget<T>(pid: u32, wait: impl FnOnce() -> T) -> Option<T> {
    let mut known = KNOWN.try_lock().ok()?;
    let result = wait();
    known.remove(&pid);
    Some(result)
}

/// Whether all the pids that `list` gives are registered. While it lists, no child is waited for: the kernel's list may skip
/// one when another leaves it. Never waits: false where it cannot be told at once.
pub(super) fn all_known(list: impl FnOnce() -> Option<Vec<u32>>) -> bool {
    let (Ok(_no_collector), Ok(known)) = (BIRTHS.try_read(), KNOWN.try_lock()) else { return false };
    list().is_some_and(|pids| pids.iter().all(|pid| known.contains(pid)))
}

/// Every registered pid but this one.
pub(super) fn all_but(pid: u32) -> HashSet<u32> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    known.remove(&pid);
    known
}

/// Calls `collect` with a test for registered pids; `None` while a child is being born. Does not wait for the birth: one that
/// hangs (a program on a dead file system) would hold up every other.
pub(super) fn unless_one_is_born<T>(collect: impl FnOnce(&dyn Fn(u32) -> bool) -> T) -> Option<T> {
    let _no_birth = match BIRTHS.try_write() {
        Ok(guard) => guard,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    Some(collect(&|pid| KNOWN.lock().unwrap_or_else(PoisonError::into_inner).contains(&pid)))
}
