//! Every metric there is, as docs/operations.md lists them. Names follow Prometheus: a base unit at the end, `_total` for what only
//! grows, `process_` for what every client library calls so.

use prometheus_client::registry::Unit;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Only grows, until the daemon starts anew.
    Counter,
    Gauge,
}

/// One metric. In the exposition its unit follows the name, and `_total` that of a counter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) unit: Option<&'static Unit>,
    pub(super) help: &'static str,
}

const fn counter(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Counter, unit: None, help }
}

const fn gauge(name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind: Kind::Gauge, unit: None, help }
}

static SECONDS: Unit = Unit::Seconds;
static BYTES: Unit = Unit::Bytes;

impl Metric {
    const fn seconds(self) -> Self {
        Self { unit: Some(&SECONDS), ..self }
    }

    const fn bytes(self) -> Self {
        Self { unit: Some(&BYTES), ..self }
    }
}

macro_rules! catalogue {
    ($($metric:ident = $made:expr;)*) => {
        $(pub(super) static $metric: Metric = $made;)*
        pub(super) static ALL: &[&Metric] = &[$(&$metric),*];
    };
}

catalogue! {
    BUILD = gauge("berth_build_info", "Always 1; the version of the daemon is its label.");
    CHAIN_READY = gauge("berth_chain_ready", "Whether every component of the chain does its job.");
    COMPONENT_READY = gauge("berth_component_ready", "Whether the component does its job.");
    RESTARTS = counter("berth_component_restarts", "Starts of the component after its first.");
    START_DURATION = gauge("berth_component_start_duration", "From the preparation to the open gate, of its latest start.").seconds();
    MEMORY = gauge("berth_component_resident_memory", "Held by its main process and all descendants; shared pages count for each.").bytes();
    PROCESSES = gauge("berth_component_processes", "Its main process and all descendants.");
    DISK = gauge("berth_cluster_disk_usage", "Taken up on disk by all files of the cluster, when it was last measured.").bytes();
    HANDOVER_RUNNING = gauge("berth_handover_running", "Whether a handover is under way.");
    HANDOVERS = counter("berth_handovers", "Handovers that came to an end, by outcome.");
    HANDOVER_PHASE = counter("berth_handover_phase", "Spent in each phase of those handovers.").seconds();
    FRONT_OPEN = gauge("berth_front_open_connections", "Connections the front has, served or not.");
    FRONT_PARKED = gauge("berth_front_parked_connections", "Those of them that wait for a slot.");
    FRONT_MAX = gauge("berth_front_max_connections", "What it admits at one time, by what the limit is for.");
    FRONT_REFUSED = counter("berth_front_refused_connections", "Connections refused, by reason.");
    FRONT_LEFT = counter("berth_front_left_connections", "Clients that left by themselves while they were parked.");
    SLOT_OPEN = gauge("berth_front_slot_connections", "Connections the slot serves.");
    SLOT_ACCEPTED = counter("berth_front_slot_accepted_connections", "Connections that were given to the slot.");
    SLOT_TRAFFIC = counter("berth_front_slot_traffic", "Relayed from clients to the slot (in) and back (out).").bytes();
    SLOT_DRAINING = gauge("berth_front_slot_draining_connections", "Connections that the drain under way still has to end.");
    SLOT_DRAINS = counter("berth_front_slot_drains", "Drains of the slot.");
    SLOT_DRAIN_TIME = counter("berth_front_slot_drain", "Spent in drains of the slot.").seconds();
    SLOT_DRAINED = counter("berth_front_slot_drained_connections", "Connections that drains ended, by how.");
    SLOT_RACED = counter("berth_front_slot_raced_connections", "Those of them whose client sent a request into the end.");
    PROCESS_MEMORY = gauge("process_resident_memory", "Held by the daemon.").bytes();
    PROCESS_CPU = counter("process_cpu", "Processor time of the daemon, user and system.").seconds();
    PROCESS_START = gauge("process_start_time", "When the daemon started, since 1970.").seconds();
    PROCESS_OPEN_FDS = gauge("process_open_fds", "Open files of the daemon.");
    PROCESS_MAX_FDS = gauge("process_max_fds", "Its limit of open files.");
    PROCESS_THREADS = gauge("process_threads", "Its threads.");
}
