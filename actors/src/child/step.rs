//! The transitions of [`super::Child`]. One function an event; each match arm is one row of the state table.

use super::{Child, Effect, Event, Life, Phase, REAP_DEADLINE, REAP_RETRY, Then, Timer};
use crate::host::{ExitStatus, GateError, PrepareError, SpawnError};
use crate::identity::Identity;
use crate::policy::{Ending, Verdict};
use crate::spec::Signal;
use rand::Rng;
use std::time::{Duration, Instant};

impl Child {
    /// Feeds one event; returns what to do, in order.
    pub fn step(&mut self, event: Event, now: Instant) -> Vec<Effect> {
        match event {
            Event::Start => self.start(now),
            Event::Stop { deadline } => self.stop(deadline),
            Event::Recheck { within } => self.recheck(within),
            Event::Excuse => {
                self.excused = true;
                Vec::new()
            }
            Event::Retry => self.retry(),
            Event::Prepared { attempt, result } if attempt == self.attempt => self.prepared(result, now),
            Event::Spawned { attempt, result } if attempt == self.attempt => self.spawned(result, now),
            Event::Timer { timer, attempt } if attempt == self.attempt => self.timer(timer, now),
            Event::Discovered { identity, result } if self.is(&identity) => match result {
                Ok(_) => self.discovered(),
                Err(failure) => self.end_start(Then::Judge { failure, status: None, ready_for: None }, true),
            },
            Event::Gate { identity, result } if self.is(&identity) => self.gate(result, now),
            Event::Exited { identity, status } if self.is(&identity) => self.exited(&identity, status, now),
            Event::Reaped { identity, result } if self.is(&identity) => self.reaped(result, now),
            Event::Prepared { .. }
            | Event::Spawned { .. }
            | Event::Timer { .. }
            | Event::Discovered { .. }
            | Event::Gate { .. }
            | Event::Exited { .. }
            | Event::Reaped { .. } => Vec::new(),
        }
    }

    fn is(&self, identity: &Identity) -> bool {
        self.identity() == Some(identity)
    }

    fn arm(&self, timer: Timer, after: Duration) -> Effect {
        Effect::Arm { timer, attempt: self.attempt, after }
    }

    fn start(&mut self, now: Instant) -> Vec<Effect> {
        if !matches!(self.phase, Phase::Down | Phase::Due) {
            return Vec::new();
        }
        self.attempt += 1;
        self.started_at = Some(now);
        self.stop_deadline = None;
        // What comes now is a life of its own: an excuse that outlived its death would make a loop nobody counts.
        self.excused = false;
        self.phase = Phase::Preparing;
        vec![
            self.arm(Timer::Gate, self.start_deadline),
            Effect::Became(Life::Starting),
            Effect::Prepare { attempt: self.attempt },
        ]
    }

    fn prepared(&mut self, result: Result<(), PrepareError>, now: Instant) -> Vec<Effect> {
        match (&self.phase, result) {
            (Phase::Preparing, Ok(())) => {
                self.phase = Phase::Spawning;
                vec![Effect::Spawn { attempt: self.attempt }]
            }
            (Phase::Preparing, Err(PrepareError::Refused(reason))) => self.fail(reason, true),
            (Phase::Preparing, Err(PrepareError::Fatal(reason))) => self.fail(reason, false),
            (Phase::Preparing, Err(PrepareError::Retry(reason))) => self.unborn(reason, now),
            (Phase::Cancelling { spawning: false }, _) => self.down(),
            _ => Vec::new(),
        }
    }

    fn spawned(&mut self, result: Result<Identity, SpawnError>, now: Instant) -> Vec<Effect> {
        match (&self.phase, result) {
            (Phase::Spawning, Ok(identity)) if self.discovers => {
                self.phase = Phase::Discovering { identity: identity.clone() };
                vec![Effect::Discover { identity }]
            }
            (Phase::Spawning, Ok(identity)) => {
                self.phase = Phase::Gating { identity: identity.clone(), ready_since: None };
                vec![Effect::AwaitGate { identity }]
            }
            (Phase::Spawning, Err(SpawnError::Fatal(reason))) => self.fail(reason, false),
            (Phase::Spawning, Err(SpawnError::Retry(reason))) => self.unborn(reason, now),
            (Phase::Cancelling { spawning: true }, Ok(identity)) => self.ask_to_end(identity, Then::Down),
            (Phase::Cancelling { spawning: true }, Err(_)) => self.down(),
            _ => Vec::new(),
        }
    }

    fn discovered(&mut self) -> Vec<Effect> {
        let Phase::Discovering { identity } = &self.phase else { return Vec::new() };
        let identity = identity.clone();
        self.phase = Phase::Gating { identity: identity.clone(), ready_since: None };
        vec![Effect::AwaitGate { identity }]
    }

    fn gate(&mut self, result: Result<(), GateError>, now: Instant) -> Vec<Effect> {
        let Phase::Gating { identity, ready_since } = &self.phase else { return Vec::new() };
        match result {
            Ok(()) => {
                let first = ready_since.is_none();
                let took = self.started_at.filter(|_| first).map(|at| now.duration_since(at));
                self.phase = Phase::Ready { identity: identity.clone(), since: ready_since.unwrap_or(now) };
                self.excused = false;
                vec![Effect::Disarm(Timer::Gate), Effect::Became(Life::Ready { took })]
            }
            Err(GateError::Hopeless(failure)) => {
                self.end_start(Then::Judge { failure, status: None, ready_for: None }, true)
            }
            Err(GateError::Fatal(reason)) => self.end_start(Then::Fail { reason }, false),
        }
    }

    /// The gate of a running process is looked at again, under a deadline of its own.
    fn recheck(&mut self, within: Duration) -> Vec<Effect> {
        let (Phase::Ready { identity, since } | Phase::Gating { identity, ready_since: Some(since) }) =
            &self.phase
        else {
            return Vec::new();
        };
        let identity = identity.clone();
        self.phase = Phase::Gating { identity: identity.clone(), ready_since: Some(*since) };
        vec![self.arm(Timer::Gate, within), Effect::Became(Life::Starting), Effect::AwaitGate { identity }]
    }

    fn stop(&mut self, deadline: Option<Duration>) -> Vec<Effect> {
        self.stop_deadline = deadline;
        match self.phase.clone() {
            // Said once: the chain would take a second word for the end of a life that has not begun yet.
            Phase::Down => Vec::new(),
            Phase::Failed { .. } | Phase::Due => self.down(),
            Phase::Backoff => {
                let mut effects = vec![Effect::Disarm(Timer::Backoff)];
                effects.extend(self.down());
                effects
            }
            Phase::Preparing => self.cancel(false),
            Phase::Spawning => self.cancel(true),
            Phase::Discovering { identity }
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

    fn cancel(&mut self, spawning: bool) -> Vec<Effect> {
        self.phase = Phase::Cancelling { spawning };
        let deadline = self.stop_deadline.unwrap_or(self.stop.deadline);
        vec![Effect::Disarm(Timer::Gate), self.arm(Timer::Stop, deadline), Effect::Became(Life::Stopping)]
    }

    /// The component's own signal; SIGKILL follows at the deadline.
    fn ask_to_end(&mut self, identity: Identity, then: Then) -> Vec<Effect> {
        let life = match &then {
            Then::Down => Life::Stopping,
            Then::Judge { failure, .. } => Life::Dead { failure: failure.clone() },
            Then::Fail { reason } => Life::Dead { failure: reason.clone() },
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
    fn end_start(&mut self, then: Then, at_once: bool) -> Vec<Effect> {
        let (Phase::Discovering { identity } | Phase::Gating { identity, .. }) = self.phase.clone() else {
            return Vec::new();
        };
        if at_once { self.reap(identity, then) } else { self.ask_to_end(identity, then) }
    }

    fn reap(&mut self, identity: Identity, then: Then) -> Vec<Effect> {
        let mut effects: Vec<_> =
            [Timer::Gate, Timer::Stop, Timer::Repeat].into_iter().map(Effect::Disarm).collect();
        effects.push(self.arm(Timer::Reap, REAP_DEADLINE));
        if let Then::Judge { failure, .. } | Then::Fail { reason: failure } = &then {
            effects.push(Effect::Became(Life::Dead { failure: failure.clone() }));
        }
        effects.push(Effect::Reap { identity: identity.clone() });
        self.phase = Phase::Reaping { identity, then };
        effects
    }

    fn exited(&mut self, identity: &Identity, status: ExitStatus, now: Instant) -> Vec<Effect> {
        let identity = identity.clone();
        match self.phase.clone() {
            Phase::Ending { then, .. } => self.reap(identity, then),
            Phase::Ready { since, .. } | Phase::Gating { ready_since: Some(since), .. } => {
                let ready_for = Some(now.duration_since(since));
                self.reap(
                    identity,
                    Then::Judge { failure: status.to_string(), status: Some(status), ready_for },
                )
            }
            Phase::Discovering { .. } | Phase::Gating { .. } => {
                let failure = format!("{status} before it was ready");
                self.reap(identity, Then::Judge { failure, status: Some(status), ready_for: None })
            }
            _ => Vec::new(),
        }
    }

    fn reaped(&mut self, result: Result<(), String>, now: Instant) -> Vec<Effect> {
        let Phase::Reaping { then, .. } = self.phase.clone() else { return Vec::new() };
        if let Err(reason) = result {
            self.last_failure = Some(reason);
            return vec![self.arm(Timer::Reap, REAP_RETRY)];
        }
        let mut effects = vec![Effect::Disarm(Timer::Reap)];
        effects.extend(match then {
            Then::Down => self.down(),
            Then::Fail { reason } => self.fail(reason, false),
            Then::Judge { failure, status, ready_for } => self.judge(failure, status, ready_for, now),
        });
        effects
    }

    /// A start that failed before there was a process.
    fn unborn(&mut self, reason: String, now: Instant) -> Vec<Effect> {
        let mut effects =
            vec![Effect::Disarm(Timer::Gate), Effect::Became(Life::Dead { failure: reason.clone() })];
        effects.extend(self.judge(reason, None, None, now));
        effects
    }

    fn judge(
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
            Verdict::Leave => self.fail(format!("{failure}; its policy does not restart it"), false),
            Verdict::GiveUp { restarts } => {
                let window = self.policy.window.as_secs();
                self.fail(
                    format!("gave up after {restarts} restarts within {window} s; the last: {failure}"),
                    false,
                )
            }
        }
    }

    fn due(&mut self) -> Vec<Effect> {
        self.phase = Phase::Due;
        vec![Effect::Became(Life::Due)]
    }

    fn fail(&mut self, reason: String, refused: bool) -> Vec<Effect> {
        self.last_failure = Some(reason.clone());
        self.phase = Phase::Failed { refused };
        vec![Effect::Disarm(Timer::Gate), Effect::Became(Life::Failed { reason, refused })]
    }

    fn down(&mut self) -> Vec<Effect> {
        self.phase = Phase::Down;
        vec![Effect::Disarm(Timer::Gate), Effect::Disarm(Timer::Stop), Effect::Became(Life::Down)]
    }

    fn retry(&mut self) -> Vec<Effect> {
        if !matches!(self.phase, Phase::Failed { .. }) {
            return Vec::new();
        }
        self.history.clear();
        self.due()
    }

    fn timer(&mut self, timer: Timer, now: Instant) -> Vec<Effect> {
        match (timer, self.phase.clone()) {
            (Timer::Backoff, Phase::Backoff) => self.due(),
            (Timer::Gate, Phase::Preparing) => {
                let mut effects = vec![Effect::Abandon];
                effects.extend(self.unborn(self.too_late("prepared"), now));
                effects
            }
            // A spawn cannot be dropped: its process would be nobody's. Its answer is awaited for another deadline.
            (Timer::Gate, Phase::Spawning) => vec![self.arm(Timer::Gate, self.start_deadline)],
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
                let signal: Signal = self.stop.signal;
                vec![Effect::Signal { identity, signal }]
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
