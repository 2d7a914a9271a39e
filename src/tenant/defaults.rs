//! Every default of a tenant, each with its reason. Figures without a source were measured on two busy cores.

use berth_actors::policy::{Restart, RestartPolicy};
use berth_actors::spec::{Signal, StopPlan};
use std::ops::RangeInclusive;
use std::time::Duration;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
const DAY: Duration = s(24 * 3600);

/// Ports leased to API servers, in blocks: a thousand, below the kernel's ephemeral range (32768 and up), so no outgoing
/// connection takes one between two starts; above 16443 nothing common is registered.
pub const PORTS: RangeInclusive<u16> = 16443..=17442;

/// What a k3s opens: its API, behind it an API server on the next port, a controller manager and a scheduler.
pub const K3S_PORTS: u16 = 4;

/// Cluster IPs of Services; the first one is in the API server's certificate. A tenant has no network of its own yet, so
/// all may share Kubernetes' customary range.
pub const SERVICE_RANGE: &str = "10.96.0.0/16";
pub const FIRST_SERVICE_IP: &str = "10.96.0.1";

/// Certificate authorities outlive the host they were made on.
pub const CA_VALIDITY: Duration = DAY.saturating_mul(3650);
/// Kubernetes' own customary lifetime of a leaf.
pub const LEAF_VALIDITY: Duration = DAY.saturating_mul(365);
/// A leaf this close to its end is signed anew at the next start.
pub const RENEW_BEFORE: Duration = DAY.saturating_mul(90);
/// Certificates begin in the past: clocks differ.
pub const CLOCK_SKEW: Duration = s(3600);

/// initdb takes 0.4 s on an idle disk; a disk that needs a minute is broken.
pub const INITDB_DEADLINE: Duration = s(60);
/// Every probe that comes too early leaves a FATAL line in the postgres log, so not faster.
pub const POSTGRES_PROBE: Duration = ms(50);
/// A login round over a local socket takes 2 ms; a server in recovery answers at once with an error.
pub const POSTGRES_ANSWER: Duration = s(5);
/// Dropping and making a database takes 0.1 s and two checkpoints of whatever else is dirty.
pub const EMPTY_DEADLINE: Duration = s(20);
/// Backends of a dead postmaster usually notice within this; the rest is killed.
pub const ORPHAN_GRACE: Duration = s(1);
/// After SIGKILL only uninterruptible disk waits keep a process.
pub const ORPHAN_DEADLINE: Duration = s(5);
/// OpenBao is up after 0.2 s; a probe costs it a TLS handshake.
pub const OPENBAO_PROBE: Duration = ms(50);
/// Writes work 20 ms after postgres accepts again; a read that comes too early leaves a line in kine's log.
pub const KINE_PROBE: Duration = ms(50);
/// An API server needs 2.4 s to start; more probes only slow it down.
pub const API_PROBE: Duration = ms(100);
/// Hanging probes are normal while the store is away; the next one may find it back.
pub const PROBE_ANSWER: Duration = s(2);
/// kine finds writes of its own at once, writes of others by polling; only one kine writes a tenant's store.
pub const KINE_POLL: Duration = ms(250);
/// postgres takes 60 sessions: two kines with this many each, OpenBao with 8, the guard and the gates.
pub const KINE_CONNECTIONS: u32 = 20;
/// Time for an API server's watches to end on a stop. Without it a single open watch holds the stop up for 60 s.
pub const WATCH_GRACE: Duration = s(3);

/// After an earlier step is back, everything that rides through serves again within 1.1 s; ten times that before it
/// is restarted after all.
pub const RIDE_THROUGH: Duration = s(15);

/// How one component starts, stops and comes back.
#[derive(Debug, Clone)]
pub struct Life {
    pub restart: RestartPolicy,
    pub stop: StopPlan,
    pub start_deadline: Duration,
}

/// No component may end unasked, whatever its exit code says: a clean stop is 0, 1, 255 or a signal, by component. The window
/// holds six lives that each run into the longest start deadline, so that one that only ever times out gives up as well.
fn policy() -> RestartPolicy {
    RestartPolicy {
        restart: Restart::Permanent,
        base_delay: ms(500),
        max_delay: s(30),
        healthy_after: s(60),
        intensity: 6,
        window: s(900),
    }
}

fn term(deadline: Duration, repeat_after: Option<Duration>) -> StopPlan {
    StopPlan { signal: Signal::Term, deadline, repeat_after }
}

pub fn postgres() -> Life {
    Life {
        // A start right after a kill may find the old shared memory in use for up to a second: two or three tries.
        restart: policy(),
        // SIGTERM waits for sessions for ever; SIGINT takes 0.3 s, a checkpoint on a slow disk more.
        stop: StopPlan { signal: Signal::Int, deadline: s(15), repeat_after: None },
        // initdb, then crash recovery: up to 3 s the first time after a crash.
        start_deadline: s(60),
    }
}

pub fn openbao() -> Life {
    Life {
        // It exits at once when the database does not answer.
        restart: policy(),
        // 20 ms; it may be deaf while it waits for its database.
        stop: term(s(5), Some(s(2))),
        start_deadline: s(30),
    }
}

pub fn kine() -> Life {
    Life {
        // Of two kines on an empty database one exits at once and works when started again.
        restart: policy(),
        // 0.5 s; while it waits for its database it ends only on the second SIGTERM.
        stop: term(s(5), Some(s(2))),
        start_deadline: s(30),
    }
}

pub fn kube_apiserver() -> Life {
    Life {
        restart: policy(),
        // 1.2 s; with a dead kine it ends only on the second SIGTERM.
        stop: term(s(15), Some(s(5))),
        // 2.4 s on a quiet host; a boot with many tenants shares the cores.
        start_deadline: s(90),
    }
}

pub fn kube_controller_manager() -> Life {
    Life {
        restart: policy(),
        // It has no handler: SIGTERM kills it within 70 ms.
        stop: term(s(5), None),
        // 0.7 s, waiting for the same cores as the API server.
        start_deadline: s(60),
    }
}

pub fn k3s() -> Life {
    Life {
        // Six starts that run into their deadline, as in the others.
        restart: RestartPolicy { window: s(1200), ..policy() },
        // Not measured here. Its parts end together; the second signal makes it exit at once.
        stop: term(s(20), Some(s(8))),
        // An API server and a controller manager in one, after unpacking itself and retries every 5 s of its own.
        start_deadline: s(120),
    }
}

pub fn cloud_controller_manager() -> Life {
    Life {
        // It retries by itself whatever an API server may answer; it ends only on a refusal or a fault of its own.
        restart: policy(),
        // It exits within 1 s, API server or not.
        stop: term(s(5), None),
        // Its first list, behind an API server that has just become ready.
        start_deadline: s(60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_that_only_ever_time_out_reach_the_intensity() {
        for life in [
            postgres(),
            openbao(),
            kine(),
            kube_apiserver(),
            kube_controller_manager(),
            k3s(),
            cloud_controller_manager(),
        ] {
            let one = life.start_deadline + life.stop.deadline + life.restart.max_delay;
            assert!(one * life.restart.intensity < life.restart.window, "{life:?}");
        }
    }
}
