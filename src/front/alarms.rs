//! The moments at which a worker's connections must be looked at again. Few have one: a joined connection whose both
//! directions are open waits for bytes only.

use super::sessions::Key;
use std::collections::BTreeSet;
use tokio::time::Instant;

#[derive(Debug, Default)]
pub(super) struct Alarms {
    set: BTreeSet<(Instant, Key)>,
}

impl Alarms {
    pub(super) fn next(&self) -> Option<Instant> {
        self.set.first().map(|(at, _)| *at)
    }

    /// Moves the alarm of `key` from `armed` to the moment it wants. One that is early enough stays where it is: most
    /// moments only move away, and whoever is woken too early says when to come back.
    pub(super) fn arm(&mut self, key: Key, armed: &mut Option<Instant>, wanted: Option<Instant>) {
        if let (Some(at), Some(wanted)) = (*armed, wanted)
            && at <= wanted
        {
            return;
        }
        self.disarm(key, armed.take());
        if let Some(at) = wanted {
            self.set.insert((at, key));
            *armed = wanted;
        }
    }

    pub(super) fn disarm(&mut self, key: Key, armed: Option<Instant>) {
        if let Some(at) = armed {
            self.set.remove(&(at, key));
        }
    }

    /// One whose moment has come; it has no alarm any more.
    pub(super) fn due(&mut self, now: Instant) -> Option<Key> {
        let first = self.set.first().filter(|(at, _)| *at <= now).copied()?;
        self.set.remove(&first);
        Some(first.1)
    }
}
