//! Every event of a child goes through here: late ones are turned away, the rest goes up ([`super::start`]) or down
//! ([`super::end`]). What a timer's end means stands here, one row for each state that has one armed.

use super::{Child, Effect, Event, Life, Phase, REAP_DEADLINE, Then, Timer};
use crate::identity::Identity;
use std::time::{Duration, Instant};

impl Child {
    /// Feeds one event; returns what to do, in order.
    pub fn step(&mut self, event: Event, now: Instant) -> Vec<Effect> {
        match event {
            Event::Adopt => self.adopt(),
            Event::Adopted { attempt, found } if attempt == self.attempt => self.adopted(found, now),
            Event::Start => self.start(now),
            Event::Stop { deadline } => self.stop(deadline),
            Event::Recheck { within } => self.recheck(within, now),
            Event::Excuse => {
                self.excused = true;
                Vec::new()
            }
            Event::Retry => self.retry(),
            Event::Occupied { attempt, reason } if attempt == self.attempt => self.occupied(reason),
            Event::Vacant { attempt } if attempt == self.attempt => self.vacant(now),
            Event::Prepared { attempt, result } if attempt == self.attempt => self.prepared(result, now),
            Event::Spawned { attempt, result } if attempt == self.attempt => self.spawned(result, now),
            Event::Timer { timer, attempt } if attempt == self.attempt => self.timer(timer, now),
            Event::Discovered { identity, result } if self.is(&identity) => match result {
                Ok(_) => self.discovered(),
                Err(failure) => self.end_start(Then::Judge { failure, status: None, ready_for: None }, true),
            },
            Event::Gate { identity, result } if self.is(&identity) => self.gate(result, now),
            Event::Unguarded { identity } if self.is(&identity) => self.unguarded(),
            Event::Exited { identity, status } if self.is(&identity) => self.exited(&identity, status, now),
            Event::Reaped { identity, result } if self.is(&identity) => self.reaped(result, now),
            Event::Adopted { .. }
            | Event::Occupied { .. }
            | Event::Vacant { .. }
            | Event::Prepared { .. }
            | Event::Spawned { .. }
            | Event::Timer { .. }
            | Event::Discovered { .. }
            | Event::Gate { .. }
            | Event::Unguarded { .. }
            | Event::Exited { .. }
            | Event::Reaped { .. } => Vec::new(),
        }
    }

    fn is(&self, identity: &Identity) -> bool {
        self.identity() == Some(identity)
    }

    pub(super) fn arm(&self, timer: Timer, after: Duration) -> Effect {
        Effect::Arm { timer, attempt: self.attempt, after }
    }

    fn timer(&mut self, timer: Timer, now: Instant) -> Vec<Effect> {
        match (timer, self.phase.clone()) {
            (Timer::Backoff, Phase::Backoff) => self.due(),
            (Timer::Gate, Phase::Preparing) => {
                let mut effects = vec![Effect::Abandon];
                effects.extend(self.unborn(self.too_late("prepared"), now));
                effects
            }
            // A spawn or an adoption cannot be dropped: its process would be nobody's. Its answer is awaited for another
            // deadline.
            (Timer::Gate, Phase::Spawning | Phase::Adopting { .. }) => {
                vec![self.arm(Timer::Gate, self.start_deadline)]
            }
            (Timer::Gate, Phase::Gating { ready_since: Some(_), .. }) => {
                vec![self.arm(Timer::Gate, self.start_deadline), Effect::Became(Life::Red)]
            }
            (Timer::Gate, Phase::Discovering { identity }) => {
                let failure = self.too_late("listening");
                self.ask_to_end(identity, Then::Judge { failure, status: None, ready_for: None })
            }
            (Timer::Gate, Phase::Gating { identity, .. }) => {
                let failure = self.too_late("ready");
                self.ask_to_end(identity, Then::Judge { failure, status: None, ready_for: None })
            }
            (Timer::Stop, Phase::Cancelling { spawning: false }) => {
                let mut effects = vec![Effect::Abandon];
                effects.extend(self.down());
                effects
            }
            (Timer::Stop, Phase::Cancelling { spawning: true }) => {
                vec![self.arm(Timer::Stop, self.stop.deadline)]
            }
            (Timer::Stop, Phase::Ending { identity, then }) => self.reap(identity, then),
            (Timer::Repeat, Phase::Ending { identity, .. }) => {
                vec![Effect::Signal { identity, signal: self.stop.signal }]
            }
            (Timer::Reap, Phase::Reaping { identity, .. }) => {
                vec![self.arm(Timer::Reap, REAP_DEADLINE), Effect::Reap { identity }]
            }
            _ => Vec::new(),
        }
    }

    fn too_late(&self, what: &str) -> String {
        format!("not {what} within {} s", self.start_deadline.as_secs())
    }
}
