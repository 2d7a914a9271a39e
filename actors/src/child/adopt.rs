//! The way in without a start: a process that an earlier daemon left is taken over as it is.
//!
//! Called by [`super::step`] alone. Nothing is trusted here: an adopted process counts as ready only once its gate was looked
//! at ([`super::start`]), and one that no longer fits is the chain's to stop.

use super::event::Found;
use super::{Child, Effect, Life, Phase, Then, Timer};
use std::time::Instant;

impl Child {
    pub(super) fn adopt(&mut self) -> Vec<Effect> {
        if self.phase != Phase::Down {
            return Vec::new();
        }
        self.attempt += 1;
        self.stop_deadline = None;
        self.excused = false;
        self.phase = Phase::Adopting { stop: false };
        vec![self.arm(Timer::Gate, self.start_deadline), Effect::Adopt { attempt: self.attempt }]
    }

    pub(super) fn adopted(&mut self, found: Option<Found>, now: Instant) -> Vec<Effect> {
        let Phase::Adopting { stop } = self.phase else { return Vec::new() };
        let Some(Found { identity, fits, is_placed }) = found else {
            return self.down();
        };
        self.starts += 1;
        if stop {
            return self.ask_to_end(identity, Then::Down);
        }
        self.phase = Phase::Adopted { identity, is_placed, since: now };
        vec![Effect::Disarm(Timer::Gate), Effect::Became(Life::Adopted { fits })]
    }
}
