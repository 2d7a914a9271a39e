//! How long each kind of request may take. The server ends a request at its deadline; the client waits a little longer,
//! so that it hears the server's reason instead of giving up first.

use std::time::Duration;

/// Reading state, or a file: answered from memory or the page cache. Longer means the arbiter is stuck.
pub const READ: Duration = Duration::from_secs(10);

/// Starting, stopping or deleting one cluster. A cold start of the real chain takes some 20 s; behind the start bound of
/// a boot storm it waits for its turn. Also the beginning of a backup, which waits for the daemon's look at credentials.
pub const CLUSTER: Duration = Duration::from_mins(10);

/// Unpacking and verifying a backup of any size, and the start of a cluster.
pub const RESTORE: Duration = Duration::from_hours(1);

/// A handover: a slot's start (120 s, tried twice at most), the drain limit, the lease.
pub const HANDOVER: Duration = Duration::from_mins(15);

/// Rotating a cluster's credentials: after the daemon's own look at them, up to four looks of an API server at its files, a minute each, and every Secret once.
pub const ROTATION: Duration = Duration::from_mins(30);

/// Thinking a handover through: kcp is asked for its lease once, and its program for its version.
pub const PLAN: Duration = Duration::from_secs(30);

/// Stopping everything: all tenants in parallel, then slots and store, each with its own deadline.
pub const DOWN: Duration = Duration::from_mins(15);

/// Looking at a new binary: it is started three times at most, and says who it is.
pub const UPGRADE: Duration = Duration::from_secs(30);

/// From the old daemon's answer to the new one's: the front's drain, and a start that may have to get new components.
pub const SUCCESSION: Duration = Duration::from_mins(15);

/// From accepting a connection (or the end of the previous request) to the last header byte of the next request.
pub const REQUEST_HEAD: Duration = Duration::from_secs(10);

/// What open requests get when the server ends, before their connections are cut: an answer needs one write.
pub const FAREWELL: Duration = Duration::from_secs(2);

/// Connecting to a local socket: only a full backlog takes any time at all.
pub const CONNECT: Duration = Duration::from_secs(2);

/// How much longer than the server a client waits.
pub const CLIENT_SLACK: Duration = Duration::from_secs(5);
