//! The word and the colour of each state, the same wherever a state is shown.

use super::terminal::Tone;
use berth_actors::status::{ChainState, ChainStatus, ChildState};

/// A chain that an operator holds down is not merely down.
pub(super) fn of(chain: &ChainStatus) -> (Tone, &'static str) {
    match (chain.state, &chain.paused) {
        (ChainState::Down, Some(_)) => (Tone::Busy, "paused"),
        (state, _) => self::chain(state),
    }
}

pub(super) fn chain(state: ChainState) -> (Tone, &'static str) {
    match state {
        ChainState::Down => (Tone::Faint, "down"),
        ChainState::Starting => (Tone::Busy, "starting"),
        ChainState::Ready => (Tone::Good, "ready"),
        ChainState::Recovering => (Tone::Busy, "recovering"),
        ChainState::Stopping => (Tone::Busy, "stopping"),
        ChainState::Done => (Tone::Faint, "done"),
        ChainState::Degraded => (Tone::Bad, "degraded"),
        ChainState::Refused => (Tone::Bad, "refused"),
    }
}

pub(super) fn child(state: ChildState) -> (Tone, &'static str) {
    match state {
        ChildState::Down => (Tone::Faint, "down"),
        ChildState::Starting => (Tone::Busy, "starting"),
        ChildState::Ready => (Tone::Good, "ready"),
        ChildState::Stopping => (Tone::Busy, "stopping"),
        ChildState::Backoff => (Tone::Busy, "backoff"),
        ChildState::Done => (Tone::Faint, "done"),
        ChildState::Failed => (Tone::Bad, "failed"),
    }
}
