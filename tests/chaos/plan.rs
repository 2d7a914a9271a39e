//! A seed becomes storms. What is drawn here is all that is left to chance; what the machine makes of it is not.

use super::args::Kind;
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::time::Duration;

/// What leads the daemon past a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trigger {
    /// A component dies and is started again.
    Death,
    Restart,
    Handover,
    Create,
    Delete,
    /// A new key for service accounts, and new certificates.
    Rotate,
    /// The next daemon passes it while it starts.
    Takeover,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL to any process of the tree, a worker or a backend as well as a main process.
    Kill {
        pick: u32,
    },
    KillDaemon,
    /// A component and, a moment later, the daemon, which may have begun to notice.
    Together {
        pick: u32,
        apart: Duration,
    },
    /// In the middle of a cluster's first start.
    KillWhileCreated {
        pick: u32,
        after: Duration,
    },
    /// The daemon dies, or freezes, between two acts.
    At {
        place: &'static str,
        trigger: Trigger,
        skip: u64,
        freeze: bool,
        pick: u32,
    },
    /// SIGSTOP for longer than any deadline of a stand-in, while its upstream is restarted.
    FreezeUnderRestart {
        pick: u32,
    },
    FreezeDaemon {
        pick: u32,
    },
    /// No state file can be written while a component dies and a cluster is asked for.
    FullDisk {
        pick: u32,
    },
    /// Its port is bound by another, which accepts and never answers, before it comes back.
    StealPort {
        pick: u32,
    },
    ExitAtStart {
        pick: u32,
    },
    /// It accepts and never answers: whoever asks whether it is ready hangs until the start's deadline.
    MuteAtStart {
        pick: u32,
    },
    IgnoreTerm,
    /// The daemon's wall clock is set, for all that follows: ahead, behind, or right again.
    TurnClock {
        hours: i64,
    },
    Handover,
    Create,
    Delete,
    Restart,
    /// The daemon becomes another one, with the same pid.
    Upgrade,
}

impl Fault {
    pub fn name(&self) -> &'static str {
        match self {
            Self::Kill { .. } => "kill -9 a process",
            Self::KillDaemon => "kill -9 the daemon",
            Self::Together { .. } => "kill -9 a process and the daemon",
            Self::KillWhileCreated { .. } => "kill -9 during cluster create",
            Self::At { freeze: false, .. } => "the daemon dies at a place",
            Self::At { freeze: true, .. } => "the daemon freezes at a place",
            Self::FreezeUnderRestart { .. } => "freeze past a deadline",
            Self::FreezeDaemon { .. } => "freeze the daemon",
            Self::FullDisk { .. } => "full disk",
            Self::StealPort { .. } => "port stolen, and mute",
            Self::ExitAtStart { .. } => "exit during start",
            Self::MuteAtStart { .. } => "mute from the start",
            Self::IgnoreTerm => "ignore SIGTERM",
            Self::TurnClock { .. } => "turn the clock",
            Self::Handover => "handover",
            Self::Create => "cluster create",
            Self::Delete => "cluster delete",
            Self::Restart => "cluster restart",
            Self::Upgrade => "berth upgrade",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nature {
    /// The daemon is stopped and started: everything must come up in order.
    Calm,
    /// Only daemons die, and clocks are turned: no component may change its process.
    DaemonOnly,
    Mixed,
}

#[derive(Debug, Clone)]
pub struct Storm {
    pub nature: Nature,
    /// Each with the pause before it.
    pub faults: Vec<(Duration, Fault)>,
}

use Trigger::{Create, Death, Delete, Handover, Restart, Rotate, Takeover};

/// Passed once for each process that is adopted.
const TAKEN: &str = "survivor-taken";
/// Places every daemon has.
const PLACES: [(&str, Trigger); 42] = [
    ("spawn-intent", Death),
    ("spawn-born", Death),
    ("spawn-recorded", Death),
    ("ledger-writing", Death),
    ("ledger-written", Death),
    ("exit-seen", Death),
    ("reap-killed", Death),
    ("reap-buried", Death),
    ("stop-signalled", Restart),
    ("reap-buried", Restart),
    ("spawn-born", Restart),
    ("handover-staged", Handover),
    ("handover-started", Handover),
    ("handover-ready", Handover),
    ("handover-retargeted", Handover),
    ("front-retargeting", Handover),
    ("front-retargeted", Handover),
    ("handover-drained", Handover),
    ("handover-old-stopping", Handover),
    ("handover-old-gone", Handover),
    ("lease-deleted", Handover),
    ("handover-lease-released", Handover),
    ("handover-done", Handover),
    ("handover-remembered", Handover),
    ("file-created", Handover),
    ("file-written", Handover),
    ("file-syncing", Handover),
    ("file-synced", Handover),
    ("file-renamed", Handover),
    ("tenant-leased", Create),
    ("tenant-recorded", Create),
    ("file-created", Create),
    ("file-written", Create),
    ("file-syncing", Create),
    ("file-synced", Create),
    ("file-renamed", Create),
    ("erase-sockets-gone", Delete),
    ("erase-files-gone", Delete),
    ("erase-port-released", Delete),
    ("erase-uid-released", Delete),
    TAKEOVERS[0],
    TAKEOVERS[1],
];
const TAKEOVERS: [(&str, Trigger); 2] = [(TAKEN, Takeover), ("strays-unreaped", Takeover)];
/// Places only a tenant of real components has: the first start of its store, its vault, and its identity; new keys.
const REAL_PLACES: [(&str, Trigger); 12] = [
    ("initdb-given", Create),
    ("pair-decided", Rotate),
    ("pair-half", Rotate),
    ("pair-whole", Rotate),
    ("signer-decided", Rotate),
    ("signer-verifies", Rotate),
    ("signer-signs", Rotate),
    ("initdb-done", Create),
    ("vault-emptied", Create),
    ("vault-opened", Create),
    ("identity-claimed", Create),
    ("identity-settled", Create),
];

/// Hours. Certificates begin 30 days before they are made, and a CCM's credential lasts seven.
const LONGEST_JUMP: i64 = 20 * 24;
/// Hours. Real components keep the host's own time, and must take what a daemon this far behind signs for 7 days.
const LONGEST_BEHIND_COMPONENTS: i64 = 6 * 24;

pub struct Plan {
    chance: SmallRng,
    kind: Kind,
    left: usize,
}

impl Plan {
    pub fn new(seed: u64, system: usize, kind: Kind, faults: usize) -> Self {
        let chance = SmallRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9).wrapping_add(system as u64));
        Self { chance, kind, left: faults }
    }

    fn nature(&mut self) -> Nature {
        match self.chance.random_range(0..12) {
            0 => Nature::Calm,
            1..=3 => Nature::DaemonOnly,
            _ => Nature::Mixed,
        }
    }

    fn fault(&mut self) -> Fault {
        let pick = self.chance.random();
        let real = self.kind == Kind::Real;
        match self.chance.random_range(0..100) {
            0..15 => Fault::Kill { pick },
            15..18 => self.turn_clock(),
            18..26 => Fault::KillDaemon,
            26..34 => Fault::Together { pick, apart: Duration::from_millis(self.chance.random_range(0..8)) },
            34..38 => {
                let longest = if real { 10_000 } else { 250 };
                let after = Duration::from_millis(self.chance.random_range(0..longest));
                Fault::KillWhileCreated { pick, after }
            }
            38..68 => self.at(pick),
            68..72 => Fault::FreezeUnderRestart { pick },
            72..77 => Fault::FreezeDaemon { pick },
            77..82 => Fault::FullDisk { pick },
            82..88 => Fault::StealPort { pick },
            88..92 if !real => Fault::ExitAtStart { pick },
            92..94 if !real => Fault::IgnoreTerm,
            88..94 => Fault::Upgrade,
            94..96 => Fault::Handover,
            96..97 => Fault::Create,
            97..98 => Fault::Delete,
            98 => Fault::Restart,
            99 if !real => Fault::MuteAtStart { pick },
            _ => Fault::Kill { pick },
        }
    }

    /// Within what certificates put up with; right again every fourth time.
    fn turn_clock(&mut self) -> Fault {
        let right = self.chance.random_ratio(1, 4);
        let behind = if self.kind == Kind::Real { LONGEST_BEHIND_COMPONENTS } else { LONGEST_JUMP };
        let hours = if right { 0 } else { self.chance.random_range(-behind..=LONGEST_JUMP) };
        Fault::TurnClock { hours }
    }

    fn at(&mut self, pick: u32) -> Fault {
        let own = if self.kind == Kind::Real { &REAL_PLACES[..] } else { &[] };
        let places: Vec<_> = PLACES.iter().chain(own).collect();
        let (place, trigger) = **places.choose(&mut self.chance).unwrap();
        // A handover writes its record at each phase; a real one a slot's files and its keys as well.
        let skip = match (place.split('-').next(), trigger) {
            (Some("file"), Handover) if self.kind == Kind::Real => self.chance.random_range(0..40),
            (Some("file"), Handover) => self.chance.random_range(0..10),
            (Some("file" | "ledger"), _) => self.chance.random_range(0..4),
            _ => 0,
        };
        Fault::At { place, trigger, skip, freeze: self.chance.random_ratio(1, 8), pick }
    }
}

impl Iterator for Plan {
    type Item = Storm;

    fn next(&mut self) -> Option<Storm> {
        if self.left == 0 {
            return None;
        }
        let nature = self.nature();
        let most = match (nature, self.kind) {
            (Nature::Calm, _) => 1,
            (Nature::DaemonOnly, _) | (_, Kind::Real) => 3,
            (Nature::Mixed, Kind::StandIn) => 6,
        };
        let count = self.chance.random_range(1..=most).min(self.left);
        self.left -= count;
        let faults = (0..count).map(|_| {
            let longest = if self.kind == Kind::Real { 1000 } else { 80 };
            let pause = Duration::from_millis(self.chance.random_range(0..longest));
            let fault = match nature {
                Nature::Mixed => self.fault(),
                Nature::DaemonOnly if self.chance.random_ratio(1, 5) => self.turn_clock(),
                Nature::DaemonOnly if self.chance.random_ratio(1, 2) => {
                    let (place, trigger) = *TAKEOVERS.choose(&mut self.chance).unwrap();
                    let skip = if place == TAKEN { self.chance.random_range(0..6) } else { 0 };
                    Fault::At { place, trigger, skip, freeze: false, pick: 0 }
                }
                Nature::DaemonOnly if self.kind == Kind::Real && self.chance.random() => Fault::Upgrade,
                Nature::DaemonOnly | Nature::Calm => Fault::KillDaemon,
            };
            (pause, fault)
        });
        Some(Storm { nature, faults: faults.collect() })
    }
}
