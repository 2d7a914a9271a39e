//! The way up: prepare, spawn, discover, gate; and a gate that is looked at again. Called by [`super::step`] alone; an event
//! that a stop has overtaken changes nothing, or undoes what came of the start.

use super::{Child, Effect, Life, Phase, Then, Timer};
use crate::host::{GateError, PrepareError, SpawnError};
use crate::identity::Identity;
use std::time::{Duration, Instant};

impl Child {
    pub(super) fn start(&mut self, now: Instant) -> Vec<Effect> {
        if !matches!(self.phase, Phase::Down | Phase::Due) {
            return Vec::new();
        }
        self.attempt += 1;
        self.starts += 1;
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

    /// Two processes of one component would share its files: nothing of it is touched before the other one is gone (C9).
    pub(super) fn occupied(&mut self, reason: String) -> Vec<Effect> {
        match self.phase {
            Phase::Preparing => {
                self.stuck = Some(reason.clone());
                self.phase = Phase::Occupied;
                vec![
                    Effect::Disarm(Timer::Gate),
                    Effect::Became(Life::Blocked { reason }),
                    Effect::AwaitVacancy { attempt: self.attempt },
                ]
            }
            Phase::Cancelling { spawning: false } => self.down(),
            _ => Vec::new(),
        }
    }

    pub(super) fn vacant(&mut self, now: Instant) -> Vec<Effect> {
        if self.phase != Phase::Occupied {
            return Vec::new();
        }
        self.stuck = None;
        self.started_at = Some(now);
        self.phase = Phase::Preparing;
        vec![
            self.arm(Timer::Gate, self.start_deadline),
            Effect::Became(Life::Starting),
            Effect::Prepare { attempt: self.attempt },
        ]
    }

    pub(super) fn prepared(&mut self, result: Result<(), PrepareError>, now: Instant) -> Vec<Effect> {
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

    pub(super) fn spawned(&mut self, result: Result<Identity, SpawnError>, now: Instant) -> Vec<Effect> {
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

    pub(super) fn discovered(&mut self) -> Vec<Effect> {
        let Phase::Discovering { identity } = &self.phase else { return Vec::new() };
        let identity = identity.clone();
        self.phase = Phase::Gating { identity: identity.clone(), ready_since: None };
        vec![Effect::AwaitGate { identity }]
    }

    pub(super) fn gate(&mut self, result: Result<(), GateError>, now: Instant) -> Vec<Effect> {
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
            Err(GateError::Upstream { step, reason: failure }) => {
                let mut effects =
                    self.end_start(Then::Judge { failure, status: None, ready_for: None }, true);
                effects.push(Effect::Became(Life::Suspects { step }));
                effects
            }
            Err(GateError::Fatal(reason)) => self.end_start(Then::Fail { reason, refused: false }, false),
            Err(GateError::Refused(reason)) => self.end_start(Then::Fail { reason, refused: true }, false),
        }
    }

    /// The chain has it looked at again, in its turn. Not before it is ready: its start, or its recheck, asks the guard anyway.
    pub(super) fn unguarded(&self) -> Vec<Effect> {
        if matches!(self.phase, Phase::Ready { .. }) {
            vec![Effect::Became(Life::Unguarded)]
        } else {
            Vec::new()
        }
    }

    /// The gate of a running process is looked at again, under a deadline of its own. That of an adopted one whose start
    /// was interrupted is awaited like any other's, its port first.
    pub(super) fn recheck(&mut self, within: Duration, now: Instant) -> Vec<Effect> {
        if let Phase::Adopted { identity, is_placed: false, .. } = &self.phase {
            let identity = identity.clone();
            self.started_at = Some(now);
            self.phase = Phase::Discovering { identity: identity.clone() };
            return vec![
                self.arm(Timer::Gate, within),
                Effect::Became(Life::Starting),
                Effect::Discover { identity },
            ];
        }
        let (Phase::Ready { identity, since }
        | Phase::Adopted { identity, since, .. }
        | Phase::Gating { identity, ready_since: Some(since) }) = &self.phase
        else {
            return Vec::new();
        };
        let identity = identity.clone();
        self.phase = Phase::Gating { identity: identity.clone(), ready_since: Some(*since) };
        vec![self.arm(Timer::Gate, within), Effect::Became(Life::Starting), Effect::AwaitGate { identity }]
    }
}
