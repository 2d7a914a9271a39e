//! The tree as an operator sees it: `berth status`, `--json` and the control API all show these values.

use crate::handover::{Phase, Side, Spent, Wish};
use crate::host::DrainReport;
use crate::identity::SlotName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// The whole daemon at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeStatus {
    pub store: Option<ChainStatus>,
    pub slots: Vec<ChainStatus>,
    pub active_slot: Option<SlotName>,
    pub front: FrontStatus,
    pub tenants: Vec<ChainStatus>,
    /// What the host keeps for each tenant, by its name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub holdings: BTreeMap<String, Holding>,
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
    #[serde(default)]
    pub handovers: Handovers,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upkeep: Option<Upkeep>,
}

/// What one tenant has on this host beside its processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// Its processes and files have this uid, and nobody else's; `None`: they are the account's that all share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// `None` before it was measured for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk: Option<Disk>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// Taken up on disk by all its files.
    pub bytes: u64,
    /// It has more files than are looked at: at least so many bytes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_partial: bool,
    pub measured_ago_ms: u64,
}

/// Which kcp runs, and what an operator has to see to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upkeep {
    /// What an upgrade put over the configuration: version and file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen_kcp: Option<String>,
    /// The newest that ever bootstrapped the store, as it calls itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub newest_kcp: Option<String>,
    /// How old certificates are and when they end, due or not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lifetimes: Vec<Lifetime>,
    /// What ends soon, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// A certificate that lives as long as it lives: nobody renews it unasked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifetime {
    /// `kcp serving`, `kcp authority`, `kcp next authority`; `CHAIN/STEP` for the one an API server made for itself when it
    /// started.
    pub of: String,
    /// RFC 3339, UTC.
    pub not_before: String,
    pub not_after: String,
    /// Whole days, rounded down: negative once it has ended.
    pub age_days: i64,
    pub left_days: i64,
}

/// Whether the serving slot's watches are alive, as far as the latest write of the canary shows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CanaryStatus {
    pub slot: SlotName,
    pub state: CanaryState,
    /// Milliseconds since the latest flight ended.
    pub landed_ago_ms: Option<u64>,
    pub interval_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CanaryState {
    /// The first one flies after the interval.
    Waiting,
    Seen {
        took_ms: u64,
    },
    /// So many writes in a row were not seen.
    Missed {
        times: u32,
    },
    /// The API or the store could not be asked, which says nothing about the watches.
    Unasked(String),
    /// It does not fly now, and why.
    Home(String),
}

/// One chain: the kcp store, a slot, or a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainStatus {
    pub name: String,
    pub state: ChainState,
    /// Why it is degraded or refused, or what it waits for.
    pub reason: Option<String>,
    /// Since when an operator has it paused: RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<String>,
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
    /// Connections it has now, served or not.
    #[serde(default)]
    pub open: u64,
    /// Those of them that wait for a target.
    pub parked: u64,
    /// Connections refused since the daemon started, for whatever reason.
    pub refused: u64,
    #[serde(default)]
    pub refused_by: Refused,
    /// Clients that left by themselves while they were parked.
    #[serde(default)]
    pub left: u64,
    /// What it admits at one time.
    #[serde(default)]
    pub limits: FrontLimits,
    pub per_slot: Vec<SlotTraffic>,
}

/// How many connections the front refused for which reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Their source address had as many as one may have.
    pub peer_cap: u64,
    /// The front had as many as it may have, and none ended for as long as a client may wait.
    pub total_cap: u64,
    /// No slot served, and as many as may wait were waiting.
    pub parked_cap: u64,
    /// No slot accepted them in time.
    pub parked_too_long: u64,
    /// The daemon was short of open files.
    pub descriptors: u64,
}

impl Refused {
    pub fn total(&self) -> u64 {
        let Self { peer_cap, total_cap, parked_cap, parked_too_long, descriptors } = self;
        peer_cap + total_cap + parked_cap + parked_too_long + descriptors
    }
}

/// Connections at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrontLimits {
    pub connections: u64,
    /// Of one source address.
    pub per_peer: u64,
    pub parked: u64,
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
    /// Connections that the drain under way still has to end.
    #[serde(default)]
    pub draining: u64,
    /// What the latest drain did; of one under way, what it has done so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_drain: Option<DrainReport>,
    /// Drains since the daemon started, and what all of them did together.
    #[serde(default)]
    pub drains: u64,
    #[serde(default)]
    pub drained: DrainReport,
}

/// A handover, phase by phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverStatus {
    pub from: SlotName,
    pub to: SlotName,
    pub outcome: HandoverOutcome,
    pub phases: Vec<PhaseStatus>,
    pub drain: Option<DrainReport>,
    #[serde(default)]
    pub wish: Wish,
    #[serde(default)]
    pub old: Side,
    #[serde(default)]
    pub new: Side,
    /// Wall clock, RFC 3339.
    #[serde(default)]
    pub began: Option<String>,
    #[serde(default)]
    pub ended: Option<String>,
    /// In which phases daemons ended under it.
    #[serde(default)]
    pub resumed: Vec<Phase>,
    #[serde(default)]
    pub warnings: Vec<String>,
    #[serde(default)]
    pub spent: Spent,
}

/// Handovers that are over, the latest last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverHistory {
    pub handovers: Vec<HandoverStatus>,
    /// Lines of the history that are none, each with its place.
    pub unreadable: Vec<String>,
}

/// What a handover would do now. Nothing was changed to find out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverPlan {
    pub from: SlotName,
    pub to: SlotName,
    pub wish: Wish,
    pub old: Side,
    pub new: Side,
    /// Where the active slot serves; the other one takes any free port.
    pub address: Option<SocketAddr>,
    /// Why it would be refused or rolled back.
    pub refusals: Vec<String>,
    pub warnings: Vec<String>,
    /// Where the time of the last one that was done went.
    pub expected: Option<Spent>,
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

/// All handovers since the daemon started that came to an end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handovers {
    pub done: HandoverTotals,
    pub rolled_back: HandoverTotals,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverTotals {
    pub count: u64,
    /// Milliseconds in each phase, of all of them together.
    pub phases_ms: BTreeMap<String, u64>,
}

impl Handovers {
    /// Adds one that has ended.
    pub fn count(&mut self, handover: &HandoverStatus) {
        let totals = match handover.outcome {
            HandoverOutcome::Running => return,
            HandoverOutcome::Done => &mut self.done,
            HandoverOutcome::RolledBack(_) => &mut self.rolled_back,
        };
        totals.count += 1;
        for PhaseStatus { phase, took_ms } in &handover.phases {
            *totals.phases_ms.entry(phase.clone()).or_default() += took_ms;
        }
    }
}
