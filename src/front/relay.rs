//! One connection, client to server and back, both directions in one hand: so that "look into the queues, decide, send the
//! FIN" has no hole in which a byte could pass. [`Connection::pump`] moves bytes and keeps the rules. Called by the worker
//! that owns the connection, whenever a socket or a moment may have changed something.
//!
//! Half-closes are passed on. A connection whose both directions are open never idles out. No socket is closed while it has
//! unread bytes, unless its peer goes on sending for longer than the linger after our FIN.

use super::config::FrontConfig;
use super::flow::Flow;
use super::hold::{Action, Cut, HoldBack, Side, View};
use super::pace::Pace;
use super::slots::{Order, Traffic};
use super::tls::{ClientStream, Records};
use super::wire::Wire;
use std::sync::Arc;
use tokio::time::Instant;

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// By its client or its server.
    Itself,
    /// Half-closed and silent for too long.
    IdledOut,
    Drained {
        cut: Cut,
        /// The client sent more than its goodbye into our FIN. What it asked there was not executed.
        raced: bool,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pumped {
    Ended(Ending),
    /// Nothing to do until a wire has changed or the moment given has come.
    Wait(Option<Instant>),
    /// There is more to move, after the others had their turn.
    Again,
}

/// Chunks a connection may move in one turn. Half a mebibyte each way: a large answer goes in few turns, and whoever has a
/// small one waits a fraction of a millisecond.
const TURN: usize = 16;

/// A client and a server that were joined, and everything known about their bytes.
#[derive(Debug)]
pub(super) struct Connection<W> {
    client: W,
    server: W,
    up: Flow,
    down: Flow,
    asked: ClientStream,
    answered: Records,
    last: Option<(Side, Instant)>,
    /// When the client's last byte came, else the start; and the server's bytes since then.
    asked_at: Instant,
    answer: u64,
    /// The longest record among them.
    longest: usize,
    /// The last byte or FIN, else the start.
    active_at: Instant,
    drain: Option<(HoldBack, Arc<Pace>)>,
    /// Set once we have decided to end it.
    ending: Option<Ending>,
    /// When the sockets are closed whatever is unread.
    close_by: Option<Instant>,
    traffic: Arc<Traffic>,
    config: Arc<FrontConfig>,
}

impl<W: Wire> Connection<W> {
    /// Bytes of the answers it holds in memory.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.down.waiting()
    }

    /// `early` was read from the client while it waited for a server.
    pub(super) fn new(
        client: W,
        server: W,
        early: Vec<u8>,
        traffic: Arc<Traffic>,
        config: Arc<FrontConfig>,
        now: Instant,
    ) -> Self {
        let mut asked = ClientStream::default();
        asked.pass(&early);
        traffic.count(Side::Client, early.len());
        Self {
            client,
            server,
            last: (!early.is_empty()).then_some((Side::Client, now)),
            asked_at: now,
            answer: 0,
            longest: 0,
            up: Flow::starting_with(early),
            down: Flow::default(),
            asked,
            answered: Records::default(),
            active_at: now,
            drain: None,
            ending: None,
            close_by: None,
            traffic,
            config,
        }
    }

    /// Begins to drain. A second order changes nothing: the first one's limit holds.
    pub(super) fn drain(&mut self, order: &Order, now: Instant) {
        if self.drain.is_none() {
            let config = self.config.drain.of_slot(order.usual_answer, order.limit);
            let hold_back = HoldBack::new(config, now, order.limit);
            self.drain = Some((hold_back, Arc::clone(&order.pace)));
        }
    }

    /// Whether its moments matter to the millisecond.
    pub(super) fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    pub(super) fn wire(&mut self, side: Side) -> &mut W {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    pub(super) fn pump(&mut self, now: Instant) -> Pumped {
        let mut left = TURN;
        let next = loop {
            let next = self.decide(now);
            // The client first: at a cut the answer and its FIN leave before anything else happens.
            let down = self.shift_down(now);
            let up = self.shift_up(now);
            if !(down || up) || self.is_over(now) {
                break next;
            }
            left -= 1;
            if left == 0 {
                return Pumped::Again;
            }
        };
        if !self.is_over(now) {
            return Pumped::Wait(next.into_iter().chain(self.close_by).min());
        }
        Pumped::Ended(match self.ending {
            // The client was too slow to take its answer: whatever the cut was meant to be, it broke something.
            Some(Ending::Drained { raced, .. }) if self.down.waiting() > 0 => {
                Ending::Drained { cut: Cut::Forced, raced }
            }
            ending => ending.unwrap_or(Ending::Itself),
        })
    }

    fn is_over(&self, now: Instant) -> bool {
        self.up.over() && self.down.over() || self.close_by.is_some_and(|close_by| now >= close_by)
    }

    /// Applies the rules of the moment; returns when they must be asked again at the latest.
    fn decide(&mut self, now: Instant) -> Option<Instant> {
        if self.ending.is_some() || self.up.is_lost() || self.down.is_lost() {
            self.linger(now);
            return None;
        }
        let half_closed = self.up.ended() != self.down.ended();
        let idle_end = half_closed.then(|| self.active_at + self.config.half_closed_idle);
        if idle_end.is_some_and(|end| now >= end) {
            self.end(Ending::IdledOut, now);
            return None;
        }
        let drain_next = self.step_drain(now);
        idle_end.into_iter().chain(drain_next).min()
    }

    /// The end is decided: what waits may still go out, then what is unread is read away for a while.
    fn linger(&mut self, now: Instant) {
        self.down.keep_back(0);
        let by = now + self.config.linger;
        if self.ending.is_none() {
            self.close_by.get_or_insert(by);
        } else if self.up.settled() && self.down.settled() {
            self.close_by = self.close_by.map(|close_by| close_by.min(by));
        }
    }

    fn step_drain(&mut self, now: Instant) -> Option<Instant> {
        let view = View {
            last: self.last,
            asked_at: self.asked_at,
            answer: self.answer,
            interim: self.answer > 0 && self.longest <= self.config.drain.interim,
            held: self.down.waiting(),
            owed: self.up.waiting() > 0,
            at_boundary: self.asked.at_boundary() && self.answered.at_boundary(),
            warm: self.asked.is_warm(),
            h1: self.asked.is_h1(),
            closing: self.up.ended() || self.down.ended(),
        };
        let (hold_back, pace) = self.drain.as_mut()?;
        let turn = |lane, latest| pace.turn(lane, now, latest);
        let silent = || self.client.is_silent() && self.server.is_silent();
        match hold_back.step(&view, now, turn, silent) {
            Action::Pass(until) => {
                self.down.keep_back(0);
                Some(until)
            }
            Action::Hold(until) => {
                self.down.keep_back(self.config.drain.tail);
                Some(until)
            }
            Action::Cut(cut) => {
                let end = hold_back.end();
                self.end(Ending::Drained { cut, raced: false }, end.max(now));
                None
            }
        }
    }

    /// Our FIN to both sides, behind what waits for them. `by`: when the linger begins at the latest.
    fn end(&mut self, ending: Ending, by: Instant) {
        if self.down.waiting() > 0 {
            self.client.cork();
        }
        self.down.close();
        self.up.close();
        self.ending = Some(ending);
        self.close_by = Some(by + self.config.linger);
    }

    fn shift_up(&mut self, now: Instant) -> bool {
        let Self { client, server, up, asked, asked_at, answer, longest, traffic, last, ending, .. } = self;
        let shifted = up.shift(client, server, |bytes| match ending {
            None => {
                asked.pass(bytes);
                traffic.count(Side::Client, bytes.len());
                *last = Some((Side::Client, now));
                (*asked_at, *answer, *longest) = (now, 0, 0);
            }
            Some(Ending::Drained { raced, .. }) => *raced |= asked.pass_late(bytes),
            Some(_) => (),
        });
        if shifted.source_failed {
            self.down.lose_sink();
        }
        self.touch(shifted.progress, now)
    }

    fn shift_down(&mut self, now: Instant) -> bool {
        let Self { client, server, down, asked, answered, answer, longest, traffic, last, ending, .. } = self;
        let shifted = down.shift(server, client, |bytes| {
            if ending.is_none() {
                if let Some((Side::Client, asked_at)) = *last {
                    traffic.answered_after(now - asked_at);
                }
                *longest = answered.pass(bytes).max(*longest);
                asked.end_turn();
                traffic.count(Side::Server, bytes.len());
                *answer += bytes.len() as u64;
                *last = Some((Side::Server, now));
            }
        });
        if shifted.source_failed {
            self.up.lose_sink();
        }
        self.touch(shifted.progress, now)
    }

    fn touch(&mut self, progress: bool, now: Instant) -> bool {
        if progress {
            self.active_at = now;
        }
        progress
    }
}
