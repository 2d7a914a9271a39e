//! Every number of the kcp slots, with its reason. Durations were measured on kcp v0.33's main branch on two busy cores. How
//! a slot's components start, stop and come back is in [`crate::policy::defaults`].

use super::GoawayChance;
use std::time::Duration;

/// Zero. During the delay a real kcp answers 504 or nothing on the API while its listener and /livez live on, so a longer
/// delay only prolongs the errors of clients that still hold a connection. The front drains them before the SIGTERM.
pub const SHUTDOWN_DELAY: Duration = Duration::ZERO;

/// Never. It is the only way to lose nothing on an HTTP/2 connection with many requests in flight at once, since a new one may
/// be written in the moment of the cut; at 0.02 every busy connection left within 3 s by itself. Its price, paid at all times:
/// a new TLS connection every 50 requests for each HTTP/2 client, while its old one stays open for its watches.
pub const GOAWAY_CHANCE: GoawayChance = GoawayChance::NEVER;

/// Between two probes: each failing one costs kcp about 25 log lines.
pub const PROBE_INTERVAL: Duration = Duration::from_millis(250);

/// For one probe. The socket accepts up to 1.3 s before TLS answers, and a waiting handshake is served then.
pub const PROBE_DEADLINE: Duration = Duration::from_secs(2);

/// How long the sign of a hung start must stand before the start is given up. The log line comes 10 s after the exec;
/// together that stays within the 15 s a handover allows.
pub const HANG_CONFIRMED_AFTER: Duration = Duration::from_secs(2);

/// For one request of a handover.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(5);

/// For a write through a slot to be seen by a watch on it, or on the other one: kine's poll alone may take 1 s.
pub const CANARY_DEADLINE: Duration = Duration::from_secs(10);

/// Between two flights of the canary. Each is one row in the store and two connections to the slot; what it finds has gone
/// unnoticed since the one before.
pub const CANARY_INTERVAL: Duration = Duration::from_secs(60);

/// How long before its end a certificate is spoken of: enough for a change of hands, a holiday and a second try.
pub const EXPIRY_NOTICE: Duration = Duration::from_hours(30 * 24);

/// How often an event says so again.
pub const EXPIRY_TOLD_EVERY: Duration = Duration::from_hours(24);

/// An API server makes a certificate for its connections to itself when it starts, for a year, and never another: after that
/// its own controllers cannot reach it.
pub const LOOPBACK_LIFETIME: Duration = Duration::from_hours(365 * 24);

/// Audit log per slot: 100 MB times the live file and three old ones bound it.
pub const AUDIT_MEGABYTES: u32 = 100;
pub const AUDIT_BACKUPS: u32 = 3;
