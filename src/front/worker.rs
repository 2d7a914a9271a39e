//! One thread of the front: it waits for its sockets, accepts, and pumps whoever has something to move. It owns its
//! connections from the moment they are joined; other threads only leave it errands.
//!
//! Everything it waits for is in one epoll. No call is made for a connection that has nothing to move, and an idle one owns
//! no buffer.

use super::accept::{Door, Knock, Place};
use super::alarms::Alarms;
use super::crew::Crew;
use super::dial;
use super::hold::Side;
use super::inbox::{Errand, Joined};
use super::relay::{Connection, Pumped};
use super::sessions::{Key, Sessions};
use super::wire::{self, Socket};
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const DOOR: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;
/// Events taken at once: more than ever are ready together on a host with few CPUs.
const EVENTS: usize = 256;
/// Clients accepted in a row before those who are here have their turn.
const BURST: usize = 4;
/// Age at which a connection's sockets get what only a long life needs. Many connections never reach it.
const SETTLED: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Worker {
    number: usize,
    epoll: OwnedFd,
    crew: Arc<Crew>,
    /// `None` once it has left.
    door: Option<Door>,
    sessions: Sessions,
    alarms: Alarms,
    /// Those that were not done in their last turn.
    busy: Vec<Key>,
    /// Young connections by age.
    settling: VecDeque<(Instant, Key)>,
}

impl Worker {
    pub(super) fn new(number: usize, crew: Arc<Crew>, listener: TcpListener) -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, crew.inbox(number), EventData::new_u64(BELL), EventFlags::IN)?;
        let mut door = Door::new(listener);
        door.open(&epoll, DOOR)?;
        Ok(Self {
            number,
            epoll,
            crew,
            door: Some(door),
            sessions: Sessions::default(),
            alarms: Alarms::default(),
            busy: Vec::new(),
            settling: VecDeque::new(),
        })
    }

    /// Until it is told to close.
    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        while self.turn(&mut events).is_continue() {}
        self.crew.inbox(self.number).close();
    }

    fn turn(&mut self, events: &mut Vec<Event>) -> ControlFlow<()> {
        let timeout = self.timeout();
        match epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => (),
            Err(errno) => {
                tracing::error!(error = %errno, "a thread of the front cannot wait for its sockets");
                std::process::abort();
            }
        }
        let now = Instant::now();
        for event in events.drain(..) {
            match event.data.u64() {
                BELL => self.run_errands(now)?,
                DOOR => self.accept(now),
                token => {
                    let (key, side) = Key::of_token(token);
                    if let Some(session) = self.sessions.get(key) {
                        session.connection.wire(side).note(event.flags);
                        self.pump(key, now);
                    }
                }
            }
        }
        for key in std::mem::take(&mut self.busy) {
            self.pump(key, now);
        }
        while let Some(key) = self.alarms.due(now) {
            if let Some(session) = self.sessions.get(key) {
                session.alarm = None;
            }
            self.pump(key, now);
        }
        self.settle(now);
        self.reopen(now);
        ControlFlow::Continue(())
    }

    fn timeout(&self) -> Option<Timespec> {
        if !self.busy.is_empty() {
            return Some(Timespec { tv_sec: 0, tv_nsec: 0 });
        }
        let settling = self.settling.front().map(|(at, _)| *at);
        let opens_at = self.door.as_ref().and_then(Door::opens_at);
        let next = self.alarms.next().into_iter().chain(settling).chain(opens_at).min()?;
        let wait = next.saturating_duration_since(Instant::now());
        // Too far to be said is as good as never.
        Timespec::try_from(wait).ok()
    }

    fn run_errands(&mut self, now: Instant) -> ControlFlow<()> {
        for errand in self.crew.inbox(self.number).take() {
            match errand {
                Errand::Relay(joined) => self.take_in(*joined, now),
                Errand::Accept => self.open_door(),
                Errand::TurnAway => {
                    if let Some(door) = &self.door {
                        door.turn_away(&self.crew.shared);
                    }
                }
                Errand::Leave(left) => {
                    if let Some(mut door) = self.door.take() {
                        door.shut(&self.epoll);
                    }
                    // Whoever asked may have given up.
                    let _ = left.send(());
                }
                Errand::LookForOrders => self.look_for_orders(now),
                Errand::Close => return ControlFlow::Break(()),
            }
        }
        ControlFlow::Continue(())
    }

    fn open_door(&mut self) {
        if let Some(Err(error)) = self.door.as_mut().map(|door| door.open(&self.epoll, DOOR)) {
            tracing::error!(%error, "a thread of the front accepts nobody any more");
        }
    }

    fn reopen(&mut self, now: Instant) {
        if self.door.as_ref().and_then(Door::opens_at).is_some_and(|at| at <= now) {
            self.open_door();
        }
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..BURST {
            let Some(door) = &mut self.door else { return };
            match door.answer(&self.epoll, &self.crew.places, &self.crew.shared, now) {
                Knock::Client(client, place) => self.welcome(client, place, now),
                Knock::Refused => (),
                Knock::Nobody => return,
                Knock::Full => return self.crew.wait_for_place(self.number),
            }
        }
    }

    fn welcome(&mut self, client: OwnedFd, place: Place, now: Instant) {
        let Some((server, member)) = dial::at_once(&self.crew.shared) else {
            return self.crew.wait_in_lobby(client, place);
        };
        let joined = Joined { client, server, early: Vec::new(), member, place };
        if self.crew.is_crowded(self.number) {
            self.crew.relay(joined);
        } else {
            self.crew.inbox(self.number).add_load();
            self.take_in(joined, now);
        }
    }

    fn take_in(&mut self, joined: Joined, now: Instant) {
        let Joined { client, server, early, member, place } = joined;
        let (traffic, config) = (member.traffic(), Arc::clone(&self.crew.shared.config));
        let has_early = !early.is_empty();
        let connection =
            Connection::new(Socket::new(client), Socket::new(server), early, traffic, config, now);
        let key = self.sessions.insert(connection, member, place);
        let registered = self.watch(key, Side::Client).and_then(|()| self.watch(key, Side::Server));
        if let Err(error) = registered {
            tracing::warn!(%error, "a connection could not be watched and is closed");
            return self.remove(key);
        }
        self.settling.push_back((now + SETTLED, key));
        self.obey(key, now);
        if has_early {
            self.pump(key, now);
        }
    }

    fn watch(&mut self, key: Key, side: Side) -> io::Result<()> {
        let Some(session) = self.sessions.get(key) else { return Ok(()) };
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, session.connection.wire(side), EventData::new_u64(key.token(side)), flags)?;
        Ok(())
    }

    fn look_for_orders(&mut self, now: Instant) {
        for key in self.sessions.keys() {
            self.obey(key, now);
        }
    }

    /// Begins to drain a connection whose slot was ordered to.
    fn obey(&mut self, key: Key, now: Instant) {
        let Some(session) = self.sessions.get(key) else { return };
        if let Some(order) = session.member.order() {
            session.connection.drain(&order, now);
            self.pump(key, now);
        }
    }

    fn pump(&mut self, key: Key, now: Instant) {
        let Some(session) = self.sessions.get(key) else { return };
        let now = if session.connection.is_draining() { Instant::now() } else { now };
        match session.connection.pump(now) {
            Pumped::Wait(next) => {
                self.alarms.arm(key, &mut session.alarm, next);
                for side in [Side::Client, Side::Server] {
                    let socket = session.connection.wire(side);
                    if socket.lacks_room() {
                        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
                        let token = EventData::new_u64(key.token(side));
                        if let Err(error) = epoll::modify(&self.epoll, &*socket, token, flags) {
                            tracing::warn!(%error, "a connection cannot be watched and is closed");
                            return self.remove(key);
                        }
                    }
                }
            }
            Pumped::Again => self.busy.push(key),
            Pumped::Ended(ending) => {
                session.member.ending = ending;
                self.remove(key);
            }
        }
    }

    fn remove(&mut self, key: Key) {
        if let Some(session) = self.sessions.remove(key) {
            self.alarms.disarm(key, session.alarm);
            self.crew.inbox(self.number).end_load();
        }
    }

    /// Tunes the sockets of those that live for a while.
    fn settle(&mut self, now: Instant) {
        while let Some((_, key)) = self.settling.pop_front_if(|(at, _)| *at <= now) {
            let Some(session) = self.sessions.get(key) else { continue };
            for side in [Side::Client, Side::Server] {
                if let Err(error) =
                    wire::tune(session.connection.wire(side), self.crew.shared.config.keepalive)
                {
                    tracing::debug!(%error, "a socket was not tuned: it is ending");
                }
            }
        }
    }
}
