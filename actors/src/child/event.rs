//! What a child is told, what it asks for, and what it tells its chain: the words between machine, actor and chain.

use crate::host::{ExitStatus, GateError, PrepareError, SpawnError};
use crate::identity::Identity;
use crate::spec::Signal;
use std::net::SocketAddr;
use std::time::Duration;

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Take charge of what an earlier daemon left. Obeyed when down.
    Adopt,
    /// Start now. Obeyed when down, or when the restart delay is over.
    Start,
    /// End, whatever is going on. `deadline` replaces the plan's own until this stop is over.
    Stop {
        deadline: Option<Duration>,
    },
    /// Look at the gate again: an earlier step was restarted under a running process.
    Recheck {
        within: Duration,
    },
    /// An earlier step died: until the next `Start` or `Ready`, an ending is not this child's fault.
    Excuse,
    /// An operator's wish to try again after a give-up or a refusal.
    Retry,
    Adopted {
        attempt: u64,
        found: Option<Found>,
    },
    /// A process of an earlier daemon holds its place.
    Occupied {
        attempt: u64,
        reason: String,
    },
    /// It holds it no longer.
    Vacant {
        attempt: u64,
    },
    Prepared {
        attempt: u64,
        result: Result<(), PrepareError>,
    },
    Spawned {
        attempt: u64,
        result: Result<Identity, SpawnError>,
    },
    Discovered {
        identity: Identity,
        result: Result<SocketAddr, String>,
    },
    Gate {
        identity: Identity,
        result: Result<(), GateError>,
    },
    /// The identity guard holds its database no more.
    Unguarded {
        identity: Identity,
    },
    Exited {
        identity: Identity,
        status: ExitStatus,
    },
    Reaped {
        identity: Identity,
        result: Result<(), String>,
    },
    Timer {
        timer: Timer,
        attempt: u64,
    },
}

/// A live process of an earlier daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub identity: Identity,
    /// It was started with what a start today would bring.
    pub fits: bool,
    /// Where it listens is on record, or it listens nowhere. Else its start was interrupted, and goes on.
    pub is_placed: bool,
}

/// What to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Adopt {
        attempt: u64,
    },
    Prepare {
        attempt: u64,
    },
    /// Tell when nothing of an earlier daemon holds its place any more. There is no deadline: nothing else can be done.
    AwaitVacancy {
        attempt: u64,
    },
    /// Drop the preparation that is under way: it outlived its deadline.
    Abandon,
    Spawn {
        attempt: u64,
    },
    Discover {
        identity: Identity,
    },
    AwaitGate {
        identity: Identity,
    },
    Signal {
        identity: Identity,
        signal: Signal,
    },
    /// SIGKILL to all that is left of this process and its descendants.
    Reap {
        identity: Identity,
    },
    Arm {
        timer: Timer,
        attempt: u64,
        after: Duration,
    },
    Disarm(Timer),
    /// Tell the chain.
    Became(Life),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Timer {
    /// From `Start` or `Recheck` to the gate's opening.
    Gate,
    /// From the stop signal to SIGKILL.
    Stop,
    /// From the stop signal to its repetition.
    Repeat,
    /// The restart delay.
    Backoff,
    /// Until a failed reap is tried again.
    Reap,
}

impl Timer {
    pub(super) const KINDS: usize = Self::Reap as usize + 1;
}

/// A child's life as the chain sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Life {
    Down,
    /// It has a process of an earlier daemon, and waits for its gate to be looked at; or, where that process does not fit,
    /// for its stop.
    Adopted {
        fits: bool,
    },
    Starting,
    /// `took`: from the start of the preparation; `None`: it was ready before, and its gate was looked at again.
    Ready {
        took: Option<Duration>,
    },
    /// Ready, but the identity guard has lost its hold: it is to be looked at again.
    Unguarded,
    /// Alive, but the gate stayed closed after an earlier step's restart.
    Red,
    Stopping,
    /// Ended unasked, or its start failed; what is left of it is being reaped.
    Dead {
        failure: String,
    },
    /// Right after `Dead`: it waited in vain for an earlier step, which is to be restarted before it.
    Suspects {
        step: String,
    },
    /// Ended unasked, and its policy leaves it at that; what is left of it is being reaped.
    Ended,
    /// The restart delay is over; it waits for `Start`.
    Due,
    /// It ended cleanly, and its policy leaves it at that.
    Done {
        how: String,
    },
    /// Gave up, or must not be restarted. `refused`: the identity guard said no.
    Failed {
        reason: String,
        refused: bool,
    },
    /// What is left of it cannot be ended; it is tried again, and nothing else happens before that.
    Stuck {
        reason: String,
    },
    /// Its start waits for the end of something that cannot be ended.
    Blocked {
        reason: String,
    },
}
