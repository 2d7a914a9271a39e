//! The connections of one worker, by the keys that epoll gives back. A key is not used again for four billion connections,
//! so an event that was already under way when its connection ended meets nobody.

use super::accept::Place;
use super::hold::Side;
use super::relay::Connection;
use super::slots::Member;
use super::wire::Socket;
use slab::Slab;
use tokio::time::Instant;

/// A client and a server that were joined.
#[derive(Debug)]
pub(super) struct Session {
    serial: u32,
    pub connection: Connection<Socket>,
    pub member: Member,
    /// When [`super::alarms::Alarms`] has it.
    pub alarm: Option<Instant>,
    pub _place: Place,
}

/// Names a connection for as long as its worker lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// Below 2^31: each connection takes two descriptors.
    index: usize,
    serial: u32,
}

impl Key {
    /// What epoll keeps for a socket of the connection.
    pub(super) fn token(self, side: Side) -> u64 {
        u64::from(self.serial) << 32 | (self.index as u64) << 1 | u64::from(side == Side::Server)
    }

    pub(super) fn of_token(token: u64) -> (Self, Side) {
        let side = if token & 1 == 1 { Side::Server } else { Side::Client };
        let index = usize::try_from((token & u64::from(u32::MAX)) >> 1).unwrap_or(usize::MAX);
        (Self { index, serial: u32::try_from(token >> 32).unwrap_or(u32::MAX) }, side)
    }
}

#[derive(Debug, Default)]
pub(super) struct Sessions {
    slab: Slab<Box<Session>>,
    serials: u32,
}

impl Sessions {
    pub(super) fn insert(&mut self, connection: Connection<Socket>, member: Member, place: Place) -> Key {
        // Never the highest, which belongs to the worker's own tokens.
        self.serials = if self.serials == u32::MAX - 1 { 0 } else { self.serials + 1 };
        let serial = self.serials;
        let session = Session { serial, connection, member, alarm: None, _place: place };
        Key { index: self.slab.insert(Box::new(session)), serial }
    }

    pub(super) fn get(&mut self, key: Key) -> Option<&mut Session> {
        self.slab.get_mut(key.index).filter(|session| session.serial == key.serial).map(Box::as_mut)
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Box<Session>> {
        self.get(key)?;
        self.slab.try_remove(key.index)
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.slab.iter().map(|(index, session)| Key { index, serial: session.serial }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_connection_and_side() {
        let largest = Key { index: (1 << 31) - 1, serial: u32::MAX - 1 };
        for key in [Key { index: 0, serial: 0 }, Key { index: 5, serial: 7 }, largest] {
            for side in [Side::Client, Side::Server] {
                assert_eq!(Key::of_token(key.token(side)), (key, side));
                assert!(key.token(side) < u64::from(u32::MAX) << 32, "the worker's own tokens are above");
            }
        }
    }
}
