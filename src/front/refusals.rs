//! Clients that were not served, by reason; and the one line that says so once in a while. A flood must not flood the log and
//! the events as well. Sessions and the accept loop count; the daemon reads the lines.

use super::peers::Peer;
use berth_actors::status::Refused;
use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::time::Instant;

/// From one line to the next. The first refusal after a quiet time is told at once.
const SAID_EVERY: Duration = Duration::from_secs(10);
/// Lines a slow reader may fall behind.
const LAG: usize = 16;

/// Why a client was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    PeerCap(Peer),
    TotalCap,
    ParkedCap,
    ParkedTooLong,
    Descriptors,
}

#[derive(Debug)]
pub(super) struct Refusals {
    state: Mutex<State>,
    lines: broadcast::Sender<String>,
}

#[derive(Debug, Default)]
struct State {
    refused: Refused,
    left: u64,
    /// As of the latest line.
    told: Refused,
    told_at: Option<Instant>,
}

impl Refusals {
    pub(super) fn new() -> Self {
        Self { state: Mutex::default(), lines: broadcast::channel(LAG).0 }
    }

    pub(super) fn count(&self, refusal: Refusal) {
        let line = self.with(|state| state.count(refusal, Instant::now()));
        if let Some(line) = line {
            tracing::warn!("the front {line}");
            // Nobody reads them: the counters tell.
            let _ = self.lines.send(line);
        }
    }

    /// A parked client that has left by itself.
    pub(super) fn count_left(&self) {
        self.with(|state| state.left += 1);
    }

    /// So far, and how many have left by themselves.
    pub(super) fn so_far(&self) -> (Refused, u64) {
        self.with(|state| (state.refused, state.left))
    }

    pub(super) fn lines(&self) -> broadcast::Receiver<String> {
        self.lines.subscribe()
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl State {
    fn count(&mut self, refusal: Refusal, now: Instant) -> Option<String> {
        let Refused { peer_cap, total_cap, parked_cap, parked_too_long, descriptors } = &mut self.refused;
        *match refusal {
            Refusal::PeerCap(_) => peer_cap,
            Refusal::TotalCap => total_cap,
            Refusal::ParkedCap => parked_cap,
            Refusal::ParkedTooLong => parked_too_long,
            Refusal::Descriptors => descriptors,
        } += 1;
        if self.told_at.is_some_and(|told_at| now < told_at + SAID_EVERY) {
            return None;
        }
        let untold = self.refused.total() - self.told.total();
        (self.told, self.told_at) = (self.refused, Some(now));
        Some(match untold {
            1 => format!("refused a client: {refusal}"),
            many => format!("refused {many} clients, the latest because {refusal}"),
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerCap(peer) => write!(f, "{peer} has max_connections_per_peer open"),
            Self::TotalCap => f.write_str("max_connections are open, and none ended"),
            Self::ParkedCap => f.write_str("no slot serves, and max_parked wait already"),
            Self::ParkedTooLong => f.write_str("no slot accepted it in time"),
            Self::Descriptors => f.write_str("the daemon is short of open files"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_flood_is_one_line_at_once_and_one_later_and_every_refusal_is_counted() {
        let (mut state, begin) = (State::default(), Instant::now());
        let greedy = Refusal::PeerCap(Peer::V4(Ipv4Addr::new(192, 0, 2, 7)));
        let first = state.count(greedy, begin);
        assert_eq!(first.as_deref(), Some("refused a client: 192.0.2.7 has max_connections_per_peer open"));
        let flood = (0..10_000).filter_map(|_| state.count(greedy, begin + SAID_EVERY / 2));
        assert_eq!(flood.count(), 0);
        let later = state.count(Refusal::ParkedTooLong, begin + SAID_EVERY);
        assert_eq!(
            later.as_deref(),
            Some("refused 10001 clients, the latest because no slot accepted it in time")
        );
        assert_eq!(state.refused, Refused { peer_cap: 10_001, parked_too_long: 1, ..Refused::default() });
    }
}
