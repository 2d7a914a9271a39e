//! What the dead leave to their successors: a ledger record and an empty cgroup in files, and what the record says in memory.
//!
//! Removing the files takes longer than bearing a successor, who needs both again. So they stay for a moment after a reap; the host
//! calls [`Leftovers::leave`], [`Leftovers::take_up`] before a birth, and [`Leftovers::clear`] when that moment is over. A daemon
//! that dies meanwhile leaves the record of a dead process, which the next one finds to be dead.

use super::cgroup::Cgroup;
use super::ledger::{Ledger, Phase, Record};
use berth_actors::identity::{ComponentId, Identity};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A restart that is to come at once comes within this.
pub(super) const LINGER: Duration = Duration::from_millis(200);

/// The life before, as far as the next one has to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) last: Option<Identity>,
    pub(super) cgroup: Option<PathBuf>,
    /// Where it listened: its clients know no other place.
    pub(super) address: Option<SocketAddr>,
}

impl Left {
    pub(super) fn of(record: &Record) -> Self {
        Self { last: record.last().cloned(), cgroup: record.cgroup.clone(), address: record.known_address() }
    }

    /// What stays on record when the life that `attempt` intended did not begin; `None`: nothing.
    pub(super) fn record_beside(self, attempt: Record) -> Option<Record> {
        let address = Some(self.address?);
        Some(Record { phase: Phase::Ended(self.last?), address, previous: None, ..attempt })
    }
}

#[derive(Debug, Default)]
pub(super) struct Leftovers {
    state: Mutex<State>,
    cleared: Condvar,
}

#[derive(Debug, Default)]
struct State {
    of: HashMap<ComponentId, Left>,
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
    pub(super) fn leave(&self, component: ComponentId, left: Left) -> bool {
        let mut state = self.state();
        state.of.insert(component, left);
        !std::mem::replace(&mut state.is_due, true)
    }

    /// From here on they are the successor's. Blocking while they are being removed.
    pub(super) fn take_up(&self, component: &ComponentId) -> Option<Left> {
        let mut state = self.state();
        while state.going.as_ref() == Some(component) {
            state = self.cleared.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.of.remove(component)
    }

    /// Removes what nobody took up, but for where it listened. Blocking.
    pub(super) fn clear(&self, ledger: &Ledger) {
        let mut state = self.state();
        state.is_due = false;
        while let Some(component) = state.of.keys().next().cloned() {
            let cgroup = state.of.remove(&component).and_then(|left| left.cgroup);
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
        let left = Left::of(&Record::blank(Phase::Intent));
        assert!(leftovers.leave(restarted.clone(), left.clone()), "the first one asks for a clearing");
        assert!(!leftovers.leave(ended.clone(), left.clone()));
        assert_eq!(leftovers.take_up(&restarted), Some(left.clone()));
        leftovers.clear(&ledger);
        assert!(ledger.read(&restarted).is_some() && ledger.read(&ended).is_none());
        assert!(leftovers.leave(ended, left), "and after a clearing the next one asks again");
    }
}
