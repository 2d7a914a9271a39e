//! Every default of a tenant, each with its reason. Figures without a source were measured on two busy cores. How its
//! components start, stop and come back is in [`crate::policy::defaults`].

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
/// A leaf's last third: it is made anew in it, and months are left to notice that this fails.
pub const RENEW_BEFORE: Duration = s(365 * 24 * 3600 / 3);
/// A ServiceAccount's key that signs no more verifies for so long. kube-apiserver makes the tokens of pods valid for a year,
/// so that clients which read theirs only once go on.
pub const OLD_SIGNER: Duration = DAY.saturating_mul(365);
/// Certificates begin in the past: clocks differ, and one that was far ahead when a certificate was made must not make it
/// invalid when it is set right.
pub const CLOCK_SKEW: Duration = DAY.saturating_mul(30);

/// initdb takes 0.4 s on an idle disk; a disk that needs a minute is broken.
pub const INITDB_DEADLINE: Duration = s(60);
/// A killed postgres that is to be deleted is started once more: crash recovery, seldom more than a second.
pub const LAST_START_DEADLINE: Duration = s(30);
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
