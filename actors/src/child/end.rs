//! The way down: the component's own signal, SIGKILL at the deadline, and the whole process tree reaped; then what the
//! restart policy says about it.

use super::{Child, Effect, Life, Phase, REAP_DEADLINE, REAP_RETRY, Then, Timer};
use crate::host::ExitStatus;
use crate::identity::Identity;
use crate::policy::{Ending, Rest, Verdict};
use rand::Rng;
use std::time::{Duration, Instant};

impl Child {
    pub(super) fn stop(&mut self, deadline: Option<Duration>) -> Vec<Effect> {
        self.stop_deadline = deadline;
        match self.phase.clone() {
            // Said once: the chain would take a second word for the end of a life that has not begun yet.
            Phase::Down => Vec::new(),
            Phase::Failed { .. } | Phase::Done | Phase::Due | Phase::Occupied => self.down(),
            Phase::Backoff => {
                let mut effects = vec![Effect::Disarm(Timer::Backoff)];
                effects.extend(self.down());
                effects
            }
            Phase::Adopting { .. } => {
                self.phase = Phase::Adopting { stop: true };
                vec![Effect::Became(Life::Stopping)]
            }
            Phase::Preparing => self.cancel(false),
            Phase::Spawning => self.cancel(true),
            Phase::Adopted { identity, .. }
            | Phase::Discovering { identity }
            | Phase::Gating { identity, .. }
            | Phase::Ready { identity, .. } => self.ask_to_end(identity, Then::Down),
            Phase::Ending { identity, .. } => {
                self.phase = Phase::Ending { identity, then: Then::Down };
                let hurry = deadline.map(|within| self.arm(Timer::Stop, within));
                hurry.into_iter().chain([Effect::Became(Life::Stopping)]).collect()
            }
            Phase::Reaping { identity, .. } => {
                self.phase = Phase::Reaping { identity, then: Then::Down };
                vec![Effect::Became(Life::Stopping)]
            }
            Phase::Cancelling { .. } => Vec::new(),
        }
    }

    pub(super) fn cancel(&mut self, spawning: bool) -> Vec<Effect> {
        self.phase = Phase::Cancelling { spawning };
        let deadline = self.stop_deadline.unwrap_or(self.stop.deadline);
        vec![Effect::Disarm(Timer::Gate), self.arm(Timer::Stop, deadline), Effect::Became(Life::Stopping)]
    }

    /// The component's own signal; SIGKILL follows at the deadline.
    pub(super) fn ask_to_end(&mut self, identity: Identity, then: Then) -> Vec<Effect> {
        let life = match &then {
            Then::Down => Life::Stopping,
            Then::Judge { failure, .. } => Life::Dead { failure: failure.clone() },
            Then::Fail { reason, .. } => Life::Dead { failure: reason.clone() },
            Then::Rest { .. } => Life::Ended,
        };
        let mut effects = vec![
            Effect::Disarm(Timer::Gate),
            self.arm(Timer::Stop, self.stop_deadline.unwrap_or(self.stop.deadline)),
        ];
        if let Some(after) = self.stop.repeat_after {
            effects.push(self.arm(Timer::Repeat, after));
        }
        effects.push(Effect::Became(life));
        effects.push(Effect::Signal { identity: identity.clone(), signal: self.stop.signal });
        self.phase = Phase::Ending { identity, then };
        effects
    }

    /// A start that will not succeed. `at_once`: it would not hear a polite signal, or has nothing to lose.
    pub(super) fn end_start(&mut self, then: Then, at_once: bool) -> Vec<Effect> {
        let (Phase::Discovering { identity } | Phase::Gating { identity, .. }) = self.phase.clone() else {
            return Vec::new();
        };
        if at_once { self.reap(identity, then) } else { self.ask_to_end(identity, then) }
    }

    pub(super) fn reap(&mut self, identity: Identity, then: Then) -> Vec<Effect> {
        let mut effects: Vec<_> =
            [Timer::Gate, Timer::Stop, Timer::Repeat].into_iter().map(Effect::Disarm).collect();
        effects.push(self.arm(Timer::Reap, REAP_DEADLINE));
        match &then {
            Then::Judge { failure, .. } | Then::Fail { reason: failure, .. } => {
                effects.push(Effect::Became(Life::Dead { failure: failure.clone() }));
            }
            Then::Rest { .. } => effects.push(Effect::Became(Life::Ended)),
            Then::Down => {}
        }
        effects.push(Effect::Reap { identity: identity.clone() });
        self.phase = Phase::Reaping { identity, then };
        effects
    }

    pub(super) fn exited(&mut self, identity: &Identity, status: ExitStatus, now: Instant) -> Vec<Effect> {
        let identity = identity.clone();
        match self.phase.clone() {
            Phase::Ending { then, .. } => self.reap(identity, then),
            Phase::Ready { since, .. }
            | Phase::Adopted { since, .. }
            | Phase::Gating { ready_since: Some(since), .. } => {
                let then = self.after_exit(status, status.to_string(), Some(now.duration_since(since)));
                self.reap(identity, then)
            }
            Phase::Discovering { .. } | Phase::Gating { .. } => {
                let then = self.after_exit(status, format!("{status} before it was ready"), None);
                self.reap(identity, then)
            }
            _ => Vec::new(),
        }
    }

    /// Known before the reap, and told: an end that nothing follows must not make the steps behind it restart.
    fn after_exit(&self, status: ExitStatus, how: String, ready_for: Option<Duration>) -> Then {
        match self.policy.restart.rest(status) {
            Some(rest) => Then::Rest { how, rest },
            None => Then::Judge { failure: how, status: Some(status), ready_for },
        }
    }

    pub(super) fn reaped(&mut self, result: Result<(), String>, now: Instant) -> Vec<Effect> {
        let Phase::Reaping { then, .. } = self.phase.clone() else { return Vec::new() };
        if let Err(reason) = result {
            self.last_failure = Some(reason.clone());
            self.stuck = Some(reason.clone());
            return vec![self.arm(Timer::Reap, REAP_RETRY), Effect::Became(Life::Stuck { reason })];
        }
        self.stuck = None;
        let mut effects = vec![Effect::Disarm(Timer::Reap)];
        effects.extend(match then {
            Then::Down => self.down(),
            Then::Fail { reason, refused } => self.fail(reason, refused),
            Then::Judge { failure, status, ready_for } => self.judge(failure, status, ready_for, now),
            Then::Rest { how, rest: Rest::Done } => self.done(how),
            Then::Rest { how, rest: Rest::Failed } => self.fail(unrestarted(&how), false),
        });
        effects
    }

    /// A start that failed before there was a process.
    pub(super) fn unborn(&mut self, reason: String, now: Instant) -> Vec<Effect> {
        let mut effects =
            vec![Effect::Disarm(Timer::Gate), Effect::Became(Life::Dead { failure: reason.clone() })];
        effects.extend(self.judge(reason, None, None, now));
        effects
    }

    pub(super) fn judge(
        &mut self,
        failure: String,
        status: Option<ExitStatus>,
        ready_for: Option<Duration>,
        now: Instant,
    ) -> Vec<Effect> {
        let ending = Ending { status, ready_for, charged: !self.excused };
        let jitter = self.chance.random::<f64>();
        match self.history.judge(&self.policy, ending, now, jitter) {
            Verdict::RestartAfter(delay) => {
                self.last_failure = Some(failure);
                self.phase = Phase::Backoff;
                if delay.is_zero() { self.due() } else { vec![self.arm(Timer::Backoff, delay)] }
            }
            Verdict::Leave => self.fail(unrestarted(&failure), false),
            Verdict::GiveUp { restarts } => {
                let window = self.policy.window.as_secs();
                self.fail(
                    format!("gave up after {restarts} restarts within {window} s; the last: {failure}"),
                    false,
                )
            }
        }
    }

    pub(super) fn due(&mut self) -> Vec<Effect> {
        self.phase = Phase::Due;
        vec![Effect::Became(Life::Due)]
    }

    fn done(&mut self, how: String) -> Vec<Effect> {
        self.phase = Phase::Done;
        vec![Effect::Became(Life::Done { how })]
    }

    pub(super) fn fail(&mut self, reason: String, refused: bool) -> Vec<Effect> {
        self.last_failure = Some(reason.clone());
        self.phase = Phase::Failed { refused };
        vec![Effect::Disarm(Timer::Gate), Effect::Became(Life::Failed { reason, refused })]
    }

    pub(super) fn down(&mut self) -> Vec<Effect> {
        self.phase = Phase::Down;
        vec![Effect::Disarm(Timer::Gate), Effect::Disarm(Timer::Stop), Effect::Became(Life::Down)]
    }

    pub(super) fn retry(&mut self) -> Vec<Effect> {
        if !matches!(self.phase, Phase::Failed { .. } | Phase::Done) {
            return Vec::new();
        }
        self.history.clear();
        self.due()
    }
}

fn unrestarted(how: &str) -> String {
    format!("{how}; its policy does not restart it")
}
