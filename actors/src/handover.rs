//! The blue/green plan as a resumable state machine.
use crate::host::Lease;
use crate::identity::SlotName;
use serde::{Deserialize, Serialize};

/// How far a handover has come; each value is journalled before the next phase begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Staged,
    Started,
    Ready,
    Retargeted,
    Drained,
    OldStopping,
    OldGone,
    LeaseReleased,
    Done,
}

/// The journal's one record. The active slot is `to` of the last `Done`, or `from` before `Retargeted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub from: SlotName,
    pub to: SlotName,
    pub phase: Phase,
    /// The old slot's lease as it was before the retarget: only this holder's lease may be deleted.
    pub old_lease: Option<Lease>,
}
