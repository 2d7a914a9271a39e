//! The connections of one worker, by the keys that epoll gives back. A key is never used twice, so an event that was already
//! under way when its connection ended meets nobody.

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
    index: u32,
    serial: u32,
}

impl Key {
    /// What epoll keeps for a socket of the connection.
    pub(super) fn token(self, side: Side) -> u64 {
        u64::from(self.serial) << 32 | u64::from(self.index) << 1 | u64::from(side == Side::Server)
    }

    pub(super) fn of_token(token: u64) -> (Self, Side) {
        let [low, high] = [token as u32, (token >> 32) as u32];
        let side = if low & 1 == 1 { Side::Server } else { Side::Client };
        (Self { index: low >> 1, serial: high }, side)
    }
}

#[derive(Debug, Default)]
pub(super) struct Sessions {
    slab: Slab<Box<Session>>,
    serials: u32,
}

impl Sessions {
    pub(super) fn insert(&mut self, connection: Connection<Socket>, member: Member, place: Place) -> Key {
        self.serials = self.serials.wrapping_add(1);
        let serial = self.serials;
        let session = Session { serial, connection, member, alarm: None, _place: place };
        Key { index: self.slab.insert(Box::new(session)) as u32, serial }
    }

    pub(super) fn get(&mut self, key: Key) -> Option<&mut Session> {
        let session = self.slab.get_mut(key.index as usize)?;
        (session.serial == key.serial).then_some(session)
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Box<Session>> {
        self.get(key)?;
        self.slab.try_remove(key.index as usize)
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.slab.iter().map(|(index, session)| Key { index: index as u32, serial: session.serial }).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }
}
