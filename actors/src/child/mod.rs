//! One process's life as a state machine: pure, driven by [`crate::supervisor`], tested without a process or a clock.
//!
//! ```text
//!           Adopt                  a process of an earlier daemon, looked at again
//!    ┌───────────────▶ Adopting ──▶ Adopted ─────────┬────────────┐
//!    │      Start                  spawned           ▼ port found ▼ gate open
//!   Down ─────────────▶ Preparing ─▶ Spawning ─▶ Discovering ─▶ Gating ─────▶ Ready
//!    ▲                      │            │            │            │            │ exit, Stop
//!    │   Stop               ▼            ▼            ▼            ▼            ▼
//!    └──────────────── Cancelling     (as below)   Ending ──▶ Reaping ──▶ Down | Backoff | Done | Failed
//! ```
//! Four rules hold in every state. A start can be interrupted by a stop at any point. Whatever ends, the whole process
//! tree is reaped before anything else happens. An event that carries another attempt or identity than the current one
//! changes nothing. Every state that waits for the outside has a timer armed; but for `Occupied`, a preparation that waits for
//! a process of an earlier daemon which even SIGKILL does not end.

pub mod actor;
mod adopt;
mod end;
mod event;
mod start;
mod step;
#[cfg(test)]
mod tests;

pub use event::{Effect, Event, Found, Life, Timer};

use crate::host::ExitStatus;
use crate::identity::Identity;
use crate::policy::{History, Rest, RestartPolicy};
use crate::spec::StopPlan;
use crate::status::ChildState;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use std::time::{Duration, Instant};

/// From a failed reap to the next try. The host's own try takes up to 5 s; a process in uninterruptible sleep may need
/// minutes, and nothing else can be done meanwhile.
const REAP_RETRY: Duration = Duration::from_secs(5);
/// The host ends a reap by itself within 5 s; this catches a host that does not.
const REAP_DEADLINE: Duration = Duration::from_secs(20);

/// What follows once the process tree is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Then {
    Down,
    /// Judge the failure by the restart policy.
    Judge {
        failure: String,
        status: Option<ExitStatus>,
        ready_for: Option<Duration>,
    },
    /// No restart can help. `refused`: the identity guard said no.
    Fail {
        reason: String,
        refused: bool,
    },
    /// The restart policy leaves it at this end.
    Rest {
        how: String,
        rest: Rest,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Down,
    /// The host is asked what an earlier daemon left. `stop`: nothing is wanted of it any more.
    Adopting {
        stop: bool,
    },
    /// `since`: the adoption. What it did before is not known.
    Adopted {
        identity: Identity,
        is_placed: bool,
        since: Instant,
    },
    Preparing,
    /// A process that cannot be ended holds its place: the start goes on when that has ended.
    Occupied,
    Spawning,
    Discovering {
        identity: Identity,
    },
    /// `ready_since`: its gate was open before, and is looked at again.
    Gating {
        identity: Identity,
        ready_since: Option<Instant>,
    },
    Ready {
        identity: Identity,
        since: Instant,
    },
    /// A stop came while a preparation (or a spawn) was under way: its result is awaited, then undone.
    Cancelling {
        spawning: bool,
    },
    Ending {
        identity: Identity,
        then: Then,
    },
    Reaping {
        identity: Identity,
        then: Then,
    },
    Backoff,
    Due,
    Done,
    Failed {
        refused: bool,
    },
}

/// The state machine of one child.
#[derive(Debug)]
pub struct Child {
    policy: RestartPolicy,
    stop: StopPlan,
    start_deadline: Duration,
    discovers: bool,
    phase: Phase,
    history: History,
    chance: SmallRng,
    /// Counts starts and adoptions that were begun; an answer to an earlier one is recognised by it.
    attempt: u64,
    /// Processes it was given charge of, or tried to start.
    starts: u64,
    started_at: Option<Instant>,
    excused: bool,
    stop_deadline: Option<Duration>,
    last_failure: Option<String>,
    /// Why its last process, or one that holds its place, could not be ended yet.
    stuck: Option<String>,
}

impl Child {
    /// A child that is down. `discovers`: a TCP port is looked up between spawn and gate. `seed` feeds the jitter.
    pub fn new(
        policy: RestartPolicy,
        stop: StopPlan,
        start_deadline: Duration,
        discovers: bool,
        seed: u64,
    ) -> Self {
        Self {
            policy,
            stop,
            start_deadline,
            discovers,
            phase: Phase::Down,
            history: History::default(),
            chance: SmallRng::seed_from_u64(seed),
            attempt: 0,
            starts: 0,
            started_at: None,
            excused: false,
            stop_deadline: None,
            last_failure: None,
            stuck: None,
        }
    }

    pub fn state(&self) -> ChildState {
        match &self.phase {
            Phase::Down => ChildState::Down,
            Phase::Adopting { stop: false }
            | Phase::Adopted { .. }
            | Phase::Preparing
            | Phase::Occupied
            | Phase::Spawning
            | Phase::Discovering { .. }
            | Phase::Gating { .. } => ChildState::Starting,
            Phase::Ready { .. } => ChildState::Ready,
            Phase::Adopting { stop: true } | Phase::Cancelling { .. } | Phase::Ending { .. } => {
                ChildState::Stopping
            }
            Phase::Reaping { then: Then::Down, .. } => ChildState::Stopping,
            Phase::Reaping { .. } | Phase::Backoff | Phase::Due => ChildState::Backoff,
            Phase::Done => ChildState::Done,
            Phase::Failed { .. } => ChildState::Failed,
        }
    }

    /// What this phase waits for, where the host cannot say it better.
    pub fn waits_for(&self) -> Option<String> {
        let what = match &self.phase {
            Phase::Adopting { .. } => "what an earlier daemon left",
            Phase::Adopted { .. } => "the steps before it",
            Phase::Preparing => "its preparation",
            Phase::Occupied => return self.stuck.clone(),
            Phase::Spawning => "its process",
            Phase::Discovering { .. } => "its TCP port",
            Phase::Gating { .. } => "its gate",
            Phase::Cancelling { .. } => "the interrupted start",
            Phase::Ending { .. } => "its exit",
            Phase::Reaping { .. } => match &self.stuck {
                Some(reason) => return Some(format!("the end of its last process: {reason}")),
                None => "the end of its last process",
            },
            Phase::Backoff => "its restart delay",
            Phase::Due => "the steps around it",
            Phase::Down | Phase::Ready { .. } | Phase::Done | Phase::Failed { .. } => return None,
        };
        Some(what.to_owned())
    }

    /// Whether a running process's gate is looked at again.
    pub fn is_rechecked(&self) -> bool {
        matches!(self.phase, Phase::Gating { ready_since: Some(_), .. })
    }

    /// The process it has, if any.
    pub fn identity(&self) -> Option<&Identity> {
        match &self.phase {
            Phase::Adopted { identity, .. }
            | Phase::Discovering { identity }
            | Phase::Gating { identity, .. }
            | Phase::Ready { identity, .. }
            | Phase::Ending { identity, .. }
            | Phase::Reaping { identity, .. } => Some(identity),
            _ => None,
        }
    }

    /// Names the start (or adoption) that is under way.
    pub fn attempt(&self) -> u64 {
        self.attempt
    }

    /// Starts after the first, or after the adoption.
    pub fn restarts(&self) -> u64 {
        self.starts.saturating_sub(1)
    }

    pub fn last_failure(&self) -> Option<&str> {
        self.last_failure.as_deref()
    }
}
