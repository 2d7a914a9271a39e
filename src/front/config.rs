//! Every number of the front in one place, each with its reason. The daemon's configuration overrides some; tests most.

use std::os::fd::RawFd;
use std::time::Duration;

/// How the front accepts, dials and relays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontConfig {
    /// Threads that accept and relay, each with its own connections. Two: one busy with a large answer leaves one for everyone else, and
    /// a thread relays more than a kcp can produce.
    pub threads: usize,
    /// Connections at one time, two file descriptors each. Above it nothing is accepted: clients wait in the kernel's queue,
    /// and are turned away once no connection has ended for `park_limit`. Ten thousand is more clients than one kcp serves.
    pub max_connections: usize,
    /// The same of one source address ([`FrontConfig::share_of_one_peer`]). A peer above it is refused, and nobody else.
    pub max_per_peer: usize,
    /// Clients that may wait for a slot at one time ([`FrontConfig::share_of_parked`]). One more is refused at once.
    pub max_parked: usize,
    /// A client whose descriptor has this number or a higher one is refused: what is left is the daemon's own.
    pub descriptor_line: RawFd,
    /// Length of the kernel's accept queue: a burst of reconnects after a cut fits; the kernel trims it to somaxconn.
    pub backlog: u32,
    /// How long a client may wait for a target that accepts. A restarted slot is back in 5 to 20 s; Go clients give up
    /// a TLS handshake after 10 s by default, patient ones get their answer.
    pub park_limit: Duration,
    /// One connect() to the target. Loopback answers at once or its accept queue is full.
    pub dial_deadline: Duration,
    /// Pause before the same target is dialled again; doubles up to `redial_longest`.
    pub redial_first: Duration,
    /// Longest such pause: what a parked client waits at most after its slot has come back.
    pub redial_longest: Duration,
    /// A connection with one direction closed and the other silent this long is ended. Nothing in the Kubernetes API
    /// half-closes and then waits; a connection with both directions open never idles out (a watch may be silent for
    /// hours).
    pub half_closed_idle: Duration,
    /// How long unread bytes are read away after our FIN: a socket closed with unread bytes sends RST, which can
    /// destroy an answer the client has not read yet.
    pub linger: Duration,
    pub keepalive: Keepalive,
    pub drain: DrainConfig,
}

/// Finds peers that vanished without a FIN, on both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe, and the time between probes. Well under the idle limits of NATs and firewalls.
    pub idle: Duration,
    pub interval: Duration,
    /// Probes without an answer; TCP_USER_TIMEOUT overrides it where both apply.
    pub probes: u32,
    /// TCP_USER_TIMEOUT: sent bytes without an acknowledgement, or a receive window that stays closed, for this long
    /// end the connection. Above a pause of a busy client, below what a slot's memory should pay for.
    pub user_timeout: Duration,
}

/// The hold-back drain. The figures were measured on a real kcp with Go clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainConfig {
    /// The server's silence that ends an answer when the client offered no h2 and the answer is no longer than one write:
    /// one request at a time, and nothing in the middle of which a server could be kept from going on.
    pub quiet_short: Duration,
    /// The silence that ends any other answer: a longer one, in the middle of which a busy machine may stop the server, or
    /// one beside which other streams wait for theirs (ALPN offers h2, or is unknown). As long as the hold allows: the
    /// client is stopped meanwhile, so it costs nothing but this wait. On a slot whose usual answer takes longer than a
    /// quarter of this, four such answers.
    pub quiet_long: Duration,
    /// The same from three quarters of the limit on: whose server was never silent for that long will not be, but for a watch's
    /// events or many clients' requests.
    pub quiet_late: Duration,
    /// An answer up to this size is sent in one write: the buffer of a Go server's connection.
    pub one_write: u64,
    /// A server that has sent no record longer than this since its client spoke last has not answered, but told it to send on: a
    /// window update of h2 (30 bytes, two of them 43), `100 Continue` (42). An API server's `ok` to `/readyz` has 72 in h2. All computed
    /// for TLS 1.3. An answer that is taken for one is not lost: it goes out, and the cut waits.
    pub interim: usize,
    /// A client that has not spoken for this many limits before the drain is not waited for: it would hardly speak in the
    /// half of one. A watch, or a connection kept in reserve.
    pub long_silent: u32,
    /// Longest an answer is held: what a drain adds to it, but for the new connection that follows.
    pub hold: Duration,
    /// Bytes that go through unheld after a hold that led to no cut, before the next try.
    pub pause: Duration,
    /// The end of an answer that is held; what comes before it goes through. Enough to make the client wait, small enough to
    /// fit into one segment with the FIN on loopback, and well under the smallest h2 flow control window (64 KiB): a client
    /// that got nothing would send no window update, and the server waiting for one would look like the end of its answer.
    pub tail: usize,
    /// Time between two cuts. Cutting 100 at once made the race between a FIN and the next request 10 to 20 times as
    /// frequent as one every 1 to 3 ms.
    pub pace: Duration,
    /// Leave h2 connections alone until half of the limit, because the slots run with `--goaway-chance` and move busy
    /// h2 clients themselves without a loss.
    pub h2_moves_itself: bool,
}

impl FrontConfig {
    pub const MAX_CONNECTIONS: usize = 10_000;

    /// Three quarters of all. Most clients of a host's front are local or come through one load balancer, and share one
    /// address: a small share would refuse ordinary days. It only keeps room for whoever has another address.
    pub const fn share_of_one_peer(max_connections: usize) -> usize {
        max_connections - max_connections / 4
    }

    /// Half of all. It has to hold every client that a restarted slot lost, and still leave room to those who are served.
    pub const fn share_of_parked(max_connections: usize) -> usize {
        max_connections - max_connections / 2
    }
}

impl Default for FrontConfig {
    fn default() -> Self {
        Self {
            threads: 2,
            max_connections: Self::MAX_CONNECTIONS,
            max_per_peer: Self::share_of_one_peer(Self::MAX_CONNECTIONS),
            max_parked: Self::share_of_parked(Self::MAX_CONNECTIONS),
            descriptor_line: RawFd::MAX,
            backlog: 4096,
            park_limit: Duration::from_secs(30),
            dial_deadline: Duration::from_secs(3),
            redial_first: Duration::from_millis(10),
            redial_longest: Duration::from_millis(250),
            half_closed_idle: Duration::from_mins(1),
            linger: Duration::from_secs(1),
            keepalive: Keepalive::default(),
            drain: DrainConfig::default(),
        }
    }
}

impl Default for Keepalive {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(30),
            interval: Duration::from_secs(10),
            probes: 3,
            user_timeout: Duration::from_mins(1),
        }
    }
}

impl DrainConfig {
    /// For a slot that takes `usual` for an answer: how long it may be silent in the middle of one goes by that.
    pub(super) fn of_slot(self, usual: Duration, limit: Duration) -> Self {
        let longest = (limit / 8).max(self.quiet_long);
        let quiet_long = (usual * 4).clamp(self.quiet_long, longest);
        let quiet_late = usual.clamp(self.quiet_late, self.quiet_long.max(self.quiet_late));
        Self { quiet_long, quiet_late, hold: self.hold + quiet_long.saturating_sub(self.quiet_long), ..self }
    }
}

impl Default for DrainConfig {
    fn default() -> Self {
        Self {
            quiet_short: Duration::from_millis(20),
            quiet_long: Duration::from_millis(250),
            quiet_late: Duration::from_millis(50),
            one_write: 4096,
            interim: 60,
            long_silent: 4,
            hold: Duration::from_millis(400),
            pause: Duration::from_millis(100),
            tail: 16 << 10,
            pace: Duration::from_millis(2),
            h2_moves_itself: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_slot_is_given_more_silence_and_no_more_than_an_eighth_of_the_limit() {
        let (config, limit) = (DrainConfig::default(), Duration::from_secs(4));
        assert_eq!(config.of_slot(Duration::from_millis(5), limit), config);
        let slow = config.of_slot(Duration::from_millis(100), limit);
        assert_eq!((slow.quiet_long, slow.hold), (Duration::from_millis(400), Duration::from_millis(550)));
        assert_eq!(config.of_slot(limit, limit).quiet_long, limit / 8);
        assert_eq!(config.of_slot(limit, Duration::ZERO).quiet_long, config.quiet_long);
    }
}
