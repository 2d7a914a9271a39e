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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::hold::Side;
    use std::time::Duration;

    fn key(serial: u64) -> Key {
        let (key, Side::Client) = Key::of_token(serial << 32) else {
            unreachable!("the lowest bit is not set")
        };
        key
    }

    #[test]
    fn an_alarm_that_moves_away_stays_and_one_that_comes_nearer_moves() {
        let (mut alarms, mut armed, now) = (Alarms::default(), None, Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        alarms.arm(key(1), &mut armed, Some(at(5)));
        alarms.arm(key(1), &mut armed, Some(at(9)));
        assert_eq!((alarms.next(), armed), (Some(at(5)), Some(at(5))));
        alarms.arm(key(1), &mut armed, Some(at(2)));
        assert_eq!((alarms.next(), armed), (Some(at(2)), Some(at(2))));
        assert_eq!((alarms.due(at(1)), alarms.due(at(2)), alarms.due(at(2))), (None, Some(key(1)), None));
    }

    #[test]
    fn an_alarm_nobody_wants_any_more_never_rings() {
        let (mut alarms, mut armed, now) = (Alarms::default(), None, Instant::now());
        alarms.arm(key(1), &mut armed, Some(now));
        alarms.arm(key(1), &mut armed, None);
        assert_eq!((alarms.next(), armed), (None, None));
        alarms.arm(key(1), &mut armed, Some(now));
        alarms.disarm(key(1), armed);
        assert_eq!(alarms.due(now), None);
    }
}
