//! What the tree and the host say, as samples. Pure.

use super::catalogue as metric;
use super::catalogue::Metric;
use super::host::Host;
use berth_actors::host::DrainReport;
use berth_actors::status::{
    ChainState, ChainStatus, ChildState, FrontStatus, HandoverOutcome, HandoverTotals, Refused, SlotTraffic,
    TreeStatus,
};
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Whole(u64),
    Real(f64),
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        Self::Whole(value)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Whole(value.into())
    }
}

impl From<Duration> for Value {
    fn from(value: Duration) -> Self {
        Self::Real(value.as_secs_f64())
    }
}

/// One line of the exposition.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) metric: &'static Metric,
    pub(super) labels: Vec<(&'static str, String)>,
    pub(super) value: Value,
}

#[derive(Default)]
struct Samples(Vec<Sample>);

impl Samples {
    fn add(&mut self, metric: &'static Metric, labels: &[(&'static str, &str)], value: impl Into<Value>) {
        let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.0.push(Sample { metric, labels, value: value.into() });
    }
}

pub(super) fn of(status: &TreeStatus, host: &Host) -> Vec<Sample> {
    let mut samples = Samples::default();
    samples.add(&metric::BUILD, &[("version", env!("CARGO_PKG_VERSION"))], 1);
    for chain in chains(status) {
        of_chain(chain, host, &mut samples);
    }
    for (cluster, holding) in &status.holdings {
        if let Some(disk) = holding.disk {
            samples.add(&metric::DISK, &[("cluster", cluster)], disk.bytes);
        }
    }
    let is_running = status.handover.as_ref().is_some_and(|it| it.outcome == HandoverOutcome::Running);
    samples.add(&metric::HANDOVER_RUNNING, &[], is_running);
    of_handovers("done", &status.handovers.done, &mut samples);
    of_handovers("rolled_back", &status.handovers.rolled_back, &mut samples);
    // A daemon without a front has no figures of one.
    if status.front != FrontStatus::default() {
        of_front(&status.front, &mut samples);
    }
    of_process(host, &mut samples);
    samples.0
}

/// All chains there are, services among them.
pub(super) fn chains(status: &TreeStatus) -> impl Iterator<Item = &ChainStatus> {
    status.store.iter().chain(&status.slots).chain(&status.tenants).chain(&status.services)
}

fn of_chain(chain: &ChainStatus, host: &Host, samples: &mut Samples) {
    samples.add(&metric::CHAIN_READY, &[("chain", &chain.name)], chain.state == ChainState::Ready);
    for child in &chain.children {
        let labels = [("chain", chain.name.as_str()), ("component", child.name.as_str())];
        samples.add(&metric::COMPONENT_READY, &labels, child.state == ChildState::Ready);
        samples.add(&metric::RESTARTS, &labels, child.restarts);
        if let Some(took) = child.ready_took_ms {
            samples.add(&metric::START_DURATION, &labels, Duration::from_millis(took));
        }
        if let Some(held) = child.pid.and_then(|pid| host.held.get(&pid)) {
            samples.add(&metric::MEMORY, &labels, held.resident);
            samples.add(&metric::PROCESSES, &labels, held.processes);
        }
    }
}

fn of_handovers(outcome: &str, totals: &HandoverTotals, samples: &mut Samples) {
    samples.add(&metric::HANDOVERS, &[("outcome", outcome)], totals.count);
    for (phase, took) in &totals.phases_ms {
        let labels = [("outcome", outcome), ("phase", phase.as_str())];
        samples.add(&metric::HANDOVER_PHASE, &labels, Duration::from_millis(*took));
    }
}

fn of_front(front: &FrontStatus, samples: &mut Samples) {
    samples.add(&metric::FRONT_OPEN, &[], front.open);
    samples.add(&metric::FRONT_PARKED, &[], front.parked);
    samples.add(&metric::FRONT_LEFT, &[], front.left);
    let limits = front.limits;
    for (of, limit) in [("total", limits.connections), ("peer", limits.per_peer), ("parked", limits.parked)] {
        samples.add(&metric::FRONT_MAX, &[("limit", of)], limit);
    }
    let Refused { peer_cap, total_cap, parked_cap, parked_too_long, descriptors } = front.refused_by;
    for (reason, count) in [
        ("peer_cap", peer_cap),
        ("total_cap", total_cap),
        ("parked_cap", parked_cap),
        ("parked_too_long", parked_too_long),
        ("descriptors", descriptors),
    ] {
        samples.add(&metric::FRONT_REFUSED, &[("reason", reason)], count);
    }
    for slot in &front.per_slot {
        of_slot(slot, samples);
    }
}

fn of_slot(traffic: &SlotTraffic, samples: &mut Samples) {
    let slot = traffic.slot.to_string();
    let slot = [("slot", slot.as_str())];
    samples.add(&metric::SLOT_OPEN, &slot, traffic.open);
    samples.add(&metric::SLOT_ACCEPTED, &slot, traffic.accepted);
    for (direction, bytes) in [("in", traffic.bytes_in), ("out", traffic.bytes_out)] {
        samples.add(&metric::SLOT_TRAFFIC, &[slot[0], ("direction", direction)], bytes);
    }
    samples.add(&metric::SLOT_DRAINING, &slot, traffic.draining);
    samples.add(&metric::SLOT_DRAINS, &slot, traffic.drains);
    let DrainReport { held, idle, self_closed, forced, raced, took_ms } = traffic.drained;
    samples.add(&metric::SLOT_DRAIN_TIME, &slot, Duration::from_millis(took_ms));
    for (how, count) in [("held", held), ("idle", idle), ("self_closed", self_closed), ("forced", forced)] {
        samples.add(&metric::SLOT_DRAINED, &[slot[0], ("how", how)], count);
    }
    samples.add(&metric::SLOT_RACED, &slot, raced);
}

fn of_process(host: &Host, samples: &mut Samples) {
    let Some(own) = &host.own else { return };
    samples.add(&metric::PROCESS_MEMORY, &[], own.resident);
    samples.add(&metric::PROCESS_CPU, &[], own.cpu);
    samples.add(&metric::PROCESS_START, &[], own.started);
    samples.add(&metric::PROCESS_OPEN_FDS, &[], own.open_files);
    samples.add(&metric::PROCESS_MAX_FDS, &[], own.most_files);
    samples.add(&metric::PROCESS_THREADS, &[], own.threads);
}
