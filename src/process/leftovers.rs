//! What the dead leave in files: a ledger record and an empty cgroup.
//!
//! Removing them takes longer than bearing a successor, who needs both again. So they stay for a moment after a reap; the host
//! calls [`Leftovers::leave`], [`Leftovers::take_up`] before a birth, and [`Leftovers::clear`] when that moment is over. A daemon
//! that dies meanwhile leaves the record of a dead process, which the next one finds to be dead.

use super::cgroup::Cgroup;
use super::ledger::Ledger;
use berth_actors::identity::ComponentId;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A restart that is to come at once comes within this.
pub(super) const LINGER: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
pub(super) struct Leftovers {
    state: Mutex<State>,
    cleared: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The cgroup, where there is one.
    of: HashMap<ComponentId, Option<PathBuf>>,
    /// Somebody will clear what is there.
    is_due: bool,
    /// Being removed just now, without the lock: it may take the disk's time.
    going: Option<ComponentId>,
}

impl Leftovers {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never waits for a file. True: the caller has to see to it that [`Self::clear`] is called after [`LINGER`].
    pub(super) fn leave(&self, component: ComponentId, cgroup: Option<PathBuf>) -> bool {
        let mut state = self.state();
        state.of.insert(component, cgroup);
        !std::mem::replace(&mut state.is_due, true)
    }

    /// From here on they are the successor's. Blocking while they are being removed.
    pub(super) fn take_up(&self, component: &ComponentId) {
        let mut state = self.state();
        while state.going.as_ref() == Some(component) {
            state = self.cleared.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.of.remove(component);
    }

    /// Removes what nobody took up, but for where it listened. Blocking.
    pub(super) fn clear(&self, ledger: &Ledger) {
        let mut state = self.state();
        state.is_due = false;
        while let Some(component) = state.of.keys().next().cloned() {
            let cgroup = state.of.remove(&component).flatten();
            state.going = Some(component.clone());
            drop(state);
            if let Some(cgroup) = cgroup {
                Cgroup::at(cgroup).remove();
            }
            if let Err(error) = ledger.close(&component, None) {
                tracing::warn!(%component, %error, "the record of a dead process stays");
            }
            state = self.state();
            state.going = None;
            self.cleared.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ledger::{Phase, Record};
    use super::*;

    #[test]
    fn what_a_successor_took_up_is_not_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(dir.path().join("ledger")).unwrap();
        let leftovers = Leftovers::default();
        let [restarted, ended] = ["restarted", "ended"].map(|name| ComponentId::new(name, "main"));
        for component in [&restarted, &ended] {
            let record = Record { component: component.clone(), ..Record::blank(Phase::Intent) };
            ledger.write(&record).unwrap();
        }
        assert!(leftovers.leave(restarted.clone(), None), "the first one asks for a clearing");
        assert!(!leftovers.leave(ended.clone(), None));
        leftovers.take_up(&restarted);
        leftovers.clear(&ledger);
        assert!(ledger.read(&restarted).is_some() && ledger.read(&ended).is_none());
        assert!(leftovers.leave(ended, None), "and after a clearing the next one asks again");
    }
}
