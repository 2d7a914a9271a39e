//! What the journal and the history hold of one handover: enough for another daemon to go on with it, and for an operator
//! to understand it a month later. Data only.

use crate::host::{DrainReport, Lease};
use crate::identity::{Identity, SlotName};
use crate::status::{HandoverOutcome, HandoverStatus, PhaseStatus};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How far a handover has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The active slot leads, and the new slot's root holds the shared material.
    Staged,
    /// The new slot is being started.
    Started,
    /// The new slot is ready and sees the old one's writes.
    Ready,
    Retargeted,
    Drained,
    OldStopping,
    OldGone,
    LeaseReleased,
    Done,
    /// Given up; the old slot serves.
    RolledBack,
}

impl Phase {
    /// Nothing of the handover is left to do.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::RolledBack)
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Staged => "staged",
            Self::Started => "started",
            Self::Ready => "ready",
            Self::Retargeted => "retargeted",
            Self::Drained => "drained",
            Self::OldStopping => "old-stopping",
            Self::OldGone => "old-gone",
            Self::LeaseReleased => "lease-released",
            Self::Done => "done",
            Self::RolledBack => "rolled-back",
        })
    }
}

/// What a handover is for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Wish {
    /// The same kcp with the same material, in the other slot.
    #[default]
    Plain,
    /// Another kcp.
    Upgrade {
        version: Option<String>,
        program: PathBuf,
        /// It may be older than the newest that ever bootstrapped the store.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        allow_downgrade: bool,
    },
    /// The same kcp with a new certificate.
    RotateCertificates,
}

impl fmt::Display for Wish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain => f.write_str("handover"),
            Self::Upgrade { version: Some(version), .. } => write!(f, "upgrade to {version}"),
            Self::Upgrade { version: None, program, .. } => write!(f, "upgrade to {}", program.display()),
            Self::RotateCertificates => f.write_str("certificate rotation"),
        }
    }
}

/// What runs, or is to run, in one slot. What is not known is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Side {
    /// As the program says it: `v1.36.0+kcp-v0.33.0`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub program: Option<PathBuf>,
    /// SHA-256 of the certificate it serves with, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// The kcp process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Identity>,
}

/// Where the time of a handover went, in microseconds. The first group is kcp's and its clients'; what is left of the whole
/// is Berth's own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spent {
    pub whole_us: u64,

    /// Until the active slot had led for long enough.
    pub settle_us: u64,
    /// From the new slot's first birth to its readiness.
    pub start_us: u64,
    pub drain_us: u64,
    /// From the old slot's stop signal until nothing of it is left.
    pub stop_us: u64,
    /// From the deleted lease until the new slot held it.
    pub hold_us: u64,

    pub stage_us: u64,
    pub canary_us: u64,
    pub retarget_us: u64,
    pub release_us: u64,
    pub journal_us: u64,
}

impl Spent {
    /// What was neither kcp's nor its clients'.
    pub fn own(&self) -> Duration {
        let others = [self.settle_us, self.start_us, self.drain_us, self.stop_us, self.hold_us];
        Duration::from_micros(others.iter().fold(self.whole_us, |rest, part| rest.saturating_sub(*part)))
    }
}

/// The journal's one record, and one line of the history once it is over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub from: SlotName,
    pub to: SlotName,
    pub phase: Phase,
    /// The old slot's lease before the retarget: only a lease with this holder may be deleted.
    pub old_lease: Option<Lease>,
    // A record of an earlier Berth ends here.
    #[serde(default)]
    pub wish: Wish,
    #[serde(default)]
    pub old: Side,
    #[serde(default)]
    pub new: Side,
    /// Wall clock, RFC 3339: to be shown, never decided by. With the slots it also names the handover.
    #[serde(default)]
    pub began: Option<String>,
    #[serde(default)]
    pub ended: Option<String>,
    /// What was reached, and how long after the phase before it.
    #[serde(default)]
    pub phases: Vec<PhaseStatus>,
    #[serde(default)]
    pub spent: Spent,
    #[serde(default)]
    pub drain: Option<DrainReport>,
    /// Why it is being rolled back.
    #[serde(default)]
    pub failure: Option<String>,
    /// What failed after the retarget without spoiling it.
    #[serde(default)]
    pub warnings: Vec<String>,
    /// In which phases daemons ended under it; another one went on each time.
    #[serde(default)]
    pub resumed: Vec<Phase>,
}

impl Record {
    pub fn new(from: SlotName, wish: Wish) -> Self {
        Self {
            from,
            to: from.other(),
            phase: Phase::Staged,
            old_lease: None,
            wish,
            old: Side::default(),
            new: Side::default(),
            began: None,
            ended: None,
            phases: Vec::new(),
            spent: Spent::default(),
            drain: None,
            failure: None,
            warnings: Vec::new(),
            resumed: Vec::new(),
        }
    }

    /// The slot the front belongs to.
    pub fn active(&self) -> SlotName {
        match self.phase {
            Phase::Staged | Phase::Started | Phase::Ready | Phase::RolledBack => self.from,
            _ => self.to,
        }
    }

    /// What is known of a slot.
    pub fn side(&self, slot: SlotName) -> &Side {
        if slot == self.from { &self.old } else { &self.new }
    }

    pub fn side_mut(&mut self, slot: SlotName) -> &mut Side {
        if slot == self.from { &mut self.old } else { &mut self.new }
    }

    pub fn status(&self) -> HandoverStatus {
        let record = self.clone();
        HandoverStatus {
            from: record.from,
            to: record.to,
            outcome: match record.phase {
                Phase::Done => HandoverOutcome::Done,
                Phase::RolledBack => HandoverOutcome::RolledBack(record.failure.unwrap_or_default()),
                _ => HandoverOutcome::Running,
            },
            phases: record.phases,
            drain: record.drain,
            wish: record.wish,
            old: record.old,
            new: record.new,
            began: record.began,
            ended: record.ended,
            resumed: record.resumed,
            warnings: record.warnings,
            spent: record.spent,
        }
    }
}
