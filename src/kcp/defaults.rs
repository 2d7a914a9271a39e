//! Every number of the kcp slots, with its reason. Durations were measured on kcp v0.33's main branch on two busy cores.

use berth_actors::policy::{Restart, RestartPolicy};
use berth_actors::spec::Signal;
use berth_actors::spec::StopPlan;
use std::time::Duration;

/// Zero. During the delay a real kcp answers 504 or nothing on the API while its listener and /livez live on, so a longer
/// delay only prolongs the errors of clients that still hold a connection. The front drains them before the SIGTERM.
pub const SHUTDOWN_DELAY: Duration = Duration::ZERO;

/// From the preparation to the gate. A restart takes 6 to 9 s or, after an unlucky informer back-off, 21 to 26 s; a fresh
/// store 24 s, and 50 s were seen under load.
pub const KCP_START: Duration = Duration::from_mins(2);

/// kine listens 5 to 75 ms after its exec; the rest is for a store that is still coming up.
pub const KINE_START: Duration = Duration::from_secs(30);

/// kcp ends 1.2 s after a SIGTERM, 11.4 s when its store is gone. No second SIGTERM: it turns a clean stop into exit code 1
/// and does not help a hung one. (A handover, with no connection left, kills after 5 s by its own rule.)
pub const KCP_STOP: StopPlan =
    StopPlan { signal: Signal::Term, deadline: Duration::from_secs(20), repeat_after: None };

/// kine ends within 0.5 s, but is deaf to the first SIGTERM while it waits for its database; the second one ends it.
pub const KINE_STOP: StopPlan = StopPlan {
    signal: Signal::Term,
    deadline: Duration::from_secs(10),
    repeat_after: Some(Duration::from_secs(2)),
};

/// How long kcp may stay red after its kine is back on the same port: it recovers within a second of a kine restart, and
/// within 5.4 s of a postgres restart below it (K9).
pub const KCP_RIDES_THROUGH_KINE: Duration = Duration::from_secs(30);

/// Five starts that each run into their deadline and a slow stop take about 12 min with their delays: a shorter window
/// would never see the intensity reached, and a kcp that cannot start would be tried for ever.
pub fn kcp_restart() -> RestartPolicy {
    RestartPolicy {
        restart: Restart::Permanent,
        base_delay: Duration::from_secs(1),
        max_delay: Duration::from_secs(30),
        healthy_after: Duration::from_mins(2),
        intensity: 5,
        window: Duration::from_mins(20),
    }
}

/// kine is cheap to start, and everything above waits for it; two kines that first meet an empty database cost one of
/// them a start, which the immediate first restart heals.
pub fn kine_restart() -> RestartPolicy {
    RestartPolicy {
        restart: Restart::Permanent,
        base_delay: Duration::from_millis(200),
        max_delay: Duration::from_secs(10),
        healthy_after: Duration::from_secs(30),
        intensity: 10,
        window: Duration::from_mins(5),
    }
}

/// Between two probes: each failing one costs kcp about 25 log lines.
pub const PROBE_INTERVAL: Duration = Duration::from_millis(250);

/// For one probe. The socket accepts up to 1.3 s before TLS answers, and a waiting handshake is served then.
pub const PROBE_DEADLINE: Duration = Duration::from_secs(2);

/// How long the sign of a hung start must stand before the start is given up. The log line comes 10 s after the exec;
/// together that stays within the 15 s a handover allows.
pub const HANG_CONFIRMED_AFTER: Duration = Duration::from_secs(2);

/// For one request of a handover.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(5);

/// For a write through one slot to be seen by a watch on the other: kine's poll alone may take 1 s.
pub const CANARY_DEADLINE: Duration = Duration::from_secs(10);

/// Audit log per slot: 100 MB times the live file and three old ones bound it.
pub const AUDIT_MEGABYTES: u32 = 100;
pub const AUDIT_BACKUPS: u32 = 3;
