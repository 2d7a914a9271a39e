//! The tree as an operator sees it: `berth status`, `--json` and the control API all show these values.

use crate::host::DrainReport;
use crate::identity::SlotName;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The whole daemon at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeStatus {
    pub store: Option<ChainStatus>,
    pub slots: Vec<ChainStatus>,
    pub active_slot: Option<SlotName>,
    pub front: FrontStatus,
    pub tenants: Vec<ChainStatus>,
    /// Plain services, each a chain of one step: what `berth supervise` runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ChainStatus>,
    /// Processes of an earlier daemon that outlive SIGKILL; their components start once they have ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strays: Vec<String>,
    /// What was asked for and is not had, such as a limit without its controller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// The handover that is under way, else the last one this daemon ran.
    pub handover: Option<HandoverStatus>,
}

/// One chain: the kcp store, a slot, or a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainStatus {
    pub name: String,
    pub state: ChainState,
    /// Why it is degraded or refused, or what it waits for.
    pub reason: Option<String>,
    pub children: Vec<ChildStatus>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChainState {
    Down,
    Starting,
    Ready,
    /// Was ready; a step died and is being restarted or waited for.
    Recovering,
    Stopping,
    /// A step ended cleanly and its policy leaves it at that; nothing behind it starts. `retry` starts it again.
    Done,
    /// A step gave up. The rest is left as it is; `retry` clears it.
    Degraded,
    /// The identity guard refused. Only an operator can clear it.
    Refused,
}

impl ChainState {
    /// It stays as it is until somebody decides otherwise.
    pub fn needs_an_operator(self) -> bool {
        matches!(self, Self::Done | Self::Degraded | Self::Refused)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChildStatus {
    pub name: String,
    pub state: ChildState,
    pub pid: Option<u32>,
    pub address: Option<SocketAddr>,
    /// Milliseconds since this state was entered.
    pub since_ms: u64,
    /// Milliseconds from the start of the preparation to the gate's opening, of the latest start.
    pub ready_took_ms: Option<u64>,
    /// Starts after the first since the daemon started.
    pub restarts: u64,
    /// What it waits for now, when it is neither ready nor down.
    pub waits_for: Option<String>,
    /// Why the latest life ended or the latest start failed.
    pub last_failure: Option<String>,
    /// The last lines it wrote before that.
    pub log_tail: Vec<String>,
    pub log: Option<String>,
    /// Set when this is not the real component, with the reason.
    pub stand_in: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChildState {
    Down,
    /// Prepared or spawned, its gate not open yet.
    Starting,
    Ready,
    Stopping,
    /// Ended unasked; waits out its restart delay, or for the steps around it.
    Backoff,
    /// Ended cleanly, and its policy leaves it at that.
    Done,
    /// Gave up, or must not be restarted.
    Failed,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrontStatus {
    pub listen: Option<SocketAddr>,
    pub target: Option<FrontTarget>,
    /// Connections that wait for a target.
    pub parked: u64,
    /// Connections refused: parked too long, or over the cap.
    pub refused: u64,
    pub per_slot: Vec<SlotTraffic>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrontTarget {
    pub slot: SlotName,
    pub address: SocketAddr,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotTraffic {
    pub slot: SlotName,
    pub open: u64,
    pub accepted: u64,
    /// Bytes from clients to the slot, and from the slot to clients.
    pub bytes_in: u64,
    pub bytes_out: u64,
}

/// A handover, phase by phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverStatus {
    pub from: SlotName,
    pub to: SlotName,
    pub outcome: HandoverOutcome,
    pub phases: Vec<PhaseStatus>,
    pub drain: Option<DrainReport>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandoverOutcome {
    Running,
    Done,
    /// Failed before the retarget; the old slot never stopped serving.
    RolledBack(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseStatus {
    pub phase: String,
    /// Milliseconds this phase took.
    pub took_ms: u64,
}
