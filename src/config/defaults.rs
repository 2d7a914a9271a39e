//! Every default of the configuration, in one place, with the reason an operator is shown beside it. A figure that the part it
//! configures knows by itself comes from there.

use super::values::{LogSize, PortRange, Positive, Span};
use crate::front::FrontConfig;
use crate::logs::Limits;
use crate::{kcp, tenant};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// What the defaults depend on, read once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    pub root: bool,
    /// `$XDG_STATE_HOME`, or `$HOME/.local/state`.
    pub state_home: Option<PathBuf>,
    pub cpus: usize,
    /// systemd started this process, and will start the next one.
    pub systemd: bool,
}

impl Surroundings {
    /// Those of this process.
    pub fn read() -> Self {
        let directory = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        Self {
            root: rustix::process::geteuid().is_root(),
            state_home: directory("XDG_STATE_HOME")
                .or_else(|| directory("HOME").map(|home| home.join(".local/state"))),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            systemd: std::env::var_os("NOTIFY_SOCKET").is_some(),
        }
    }
}

/// The command line looks for a daemon here too.
pub fn state_dir(surroundings: &Surroundings) -> (Option<PathBuf>, &'static str) {
    if surroundings.root {
        return (Some(PathBuf::from("/var/lib/berth")), "a system daemon's state");
    }
    (surroundings.state_home.as_ref().map(|home| home.join("berth")), "a user's state (XDG_STATE_HOME)")
}

pub(super) const RUN_DIR: &str =
    "derived from the state directory, short enough for the 107 bytes of a socket path";

pub(super) const USER: &str = "for root: berth if there is such an account, else nobody";

/// A start is bound by the CPU (initdb, the API server's own start); more at once only makes each later.
pub fn start_concurrency(surroundings: &Surroundings) -> (u16, &'static str) {
    let cpus = u16::try_from(surroundings.cpus).unwrap_or(u16::MAX);
    (cpus.max(2), "one start per CPU, at least two: a slow one must not hold up all others")
}

/// `systemctl restart berth` is no reason for a tenant to notice anything; a daemon in a terminal takes its own along.
pub(super) fn stop_children(surroundings: &Surroundings) -> (bool, &'static str) {
    if surroundings.systemd {
        return (false, "systemd starts the next daemon, which adopts everything; `berth down` stops it");
    }
    (true, "no systemd: nobody would be left to look after what runs on")
}

pub const FRONT_LISTEN: (SocketAddr, &str) = (
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 6443),
    "the customary API port; this host only",
);

/// Measured on a real kcp: plain connections end within 0.2 s; HTTP/2 with many streams needs about 2 s.
pub const DRAIN_LIMIT: (Span, &str) =
    (Span(Duration::from_secs(4)), "twice what busy HTTP/2 clients need to leave by themselves");

pub(super) const MAX_CONNECTIONS: (usize, &str) = (
    FrontConfig::MAX_CONNECTIONS,
    "more clients than one kcp serves; two open files each, so the limit of open files may allow fewer",
);

pub(super) fn max_connections_per_peer(max_connections: usize) -> (usize, &'static str) {
    let reason = "three quarters of max_connections: local clients, and all behind one load balancer, share an address";
    (FrontConfig::share_of_one_peer(max_connections), reason)
}

pub(super) fn max_parked(max_connections: usize) -> (usize, &'static str) {
    let reason =
        "half of max_connections: room for all that a restarted slot lost, and for those who are served";
    (FrontConfig::share_of_parked(max_connections), reason)
}

pub(super) const METRICS_LISTEN: &str = "the control socket answers; Prometheus itself needs an address";

pub const PORTS: (PortRange, &str) =
    (PortRange::of(&tenant::defaults::PORTS), "a thousand ports below the kernel's ephemeral range");

pub const FIRST_UID: (u32, &str) = (
    2_100_000_000,
    "clear of accounts, of subordinate ids, and of what systemd and directory services (sssd) hand out",
);

pub const UIDS: (u32, &str) = (
    40_000_000,
    "so many that two daemons of one host, which begin anywhere in them, do not meet; 0: all share one",
);

pub(super) const TENANT_DISK: &str = "none: how much a cluster keeps is its owner's business";

pub(super) const LOG_MAX_SIZE: (LogSize, &str) =
    (LogSize(Limits::MAX_SIZE), "some hundred thousand lines, still quick to search");

pub(super) const LOG_KEEP: (u16, &str) =
    (Limits::KEEP, "with the file that is written to, 64 MiB for each component at the default size");

pub(super) const KCP_ENABLED: (bool, &str) = (true, "kcp is what the front serves");

pub const SHUTDOWN_DELAY: (Span, &str) = (
    Span(kcp::defaults::SHUTDOWN_DELAY),
    "a terminating kcp serves nobody; the front drains before it is told to stop",
);

pub(super) const SLOT_PORTS: &str =
    "kcp takes free ports and they are found; two here, such as [16440, 16441], where they cannot be";

pub(super) const CANARY_INTERVAL: (Span, &str) = (
    Span(kcp::defaults::CANARY_INTERVAL),
    "one small write a minute: stalled watches are found within two; 0s: never",
);

pub(super) const CANARY_DEADLINE: (Positive, &str) = (
    Positive(Span(kcp::defaults::CANARY_DEADLINE)),
    "a watch sees a write within 1 s at worst; ten times that is no slow moment",
);

pub const GOAWAY_CHANCE: (kcp::GoawayChance, &str) = (
    kcp::defaults::GOAWAY_CHANCE,
    "no new TLS connection every 50 requests; 0.02 where clients run many HTTP/2 requests at once",
);

pub(super) const COMPONENT: &str = "the asset store's";
