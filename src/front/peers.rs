//! How many connections each source address has, so that one of them cannot take every place. The door asks before it lets
//! a client in; a [`Seat`] is given back when it is dropped. One short lock for each connection's beginning and end.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Who counts as one: an IPv4 address, or the /64 of an IPv6 address. One host is usually given a whole /64, and would
/// have as many caps as it has addresses in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Peer {
    V4(Ipv4Addr),
    /// The upper half of the address.
    V6(u64),
}

impl From<IpAddr> for Peer {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => Self::V6((address.to_bits() >> 64) as u64),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::V4(address) => address.fmt(f),
            Self::V6(network) => write!(f, "{}/64", Ipv6Addr::from_bits(u128::from(network) << 64)),
        }
    }
}

#[derive(Debug)]
pub(super) struct Peers {
    cap: usize,
    counts: Mutex<Counts>,
}

/// Peers without a connection are not in it: it is never larger than the front is full.
#[derive(Debug, Default)]
struct Counts {
    of: HashMap<Peer, usize>,
    all: usize,
}

/// One connection's place among its peer's.
#[derive(Debug)]
pub(super) struct Seat {
    peers: Arc<Peers>,
    peer: Peer,
}

impl Peers {
    pub(super) fn new(cap: usize) -> Arc<Self> {
        Arc::new(Self { cap, counts: Mutex::default() })
    }

    /// `None`: the peer has as many as one may have.
    pub(super) fn seat(self: &Arc<Self>, peer: Peer) -> Option<Seat> {
        let mut counts = self.counts();
        let count = counts.of.entry(peer).or_default();
        if *count >= self.cap {
            return None;
        }
        *count += 1;
        counts.all += 1;
        Some(Seat { peers: Arc::clone(self), peer })
    }

    /// Connections of all peers.
    pub(super) fn open(&self) -> usize {
        self.counts().all
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counts = self.peers.counts();
        counts.all -= 1;
        if let Entry::Occupied(mut count) = counts.of.entry(self.peer) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str) -> Peer {
        Peer::from(address.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn a_peer_over_its_cap_waits_for_its_own_and_for_nobody_else() {
        let peers = Peers::new(2);
        let seats = [peers.seat(peer("127.0.0.1")), peers.seat(peer("127.0.0.1"))];
        assert!(seats.iter().all(Option::is_some));
        assert!(peers.seat(peer("127.0.0.1")).is_none());
        let other = peers.seat(peer("127.0.0.2"));
        assert!(other.is_some());
        assert_eq!(peers.open(), 3);
        drop(other);
        assert!(peers.seat(peer("127.0.0.1")).is_none());
        drop(seats);
        assert!(peers.seat(peer("127.0.0.1")).is_some());
        assert_eq!(peers.open(), 0);
    }

    #[test]
    fn whoever_has_left_takes_no_room() {
        let peers = Peers::new(1);
        for last in 0..=255 {
            assert!(peers.seat(Peer::V4(Ipv4Addr::new(10, 0, 0, last))).is_some());
        }
        assert!(peers.counts().of.is_empty());
    }

    #[test]
    fn a_whole_slash_64_is_one_peer_and_a_mapped_address_is_its_ipv4_self() {
        assert_eq!(peer("2001:db8:0:1::1"), peer("2001:db8:0:1:ffff:ffff:ffff:ffff"));
        assert_ne!(peer("2001:db8:0:1::1"), peer("2001:db8:0:2::1"));
        assert_eq!(peer("::ffff:192.0.2.7"), peer("192.0.2.7"));
        assert_eq!(peer("2001:db8:0:1::1").to_string(), "2001:db8:0:1::/64");
        assert_eq!(peer("::ffff:192.0.2.7").to_string(), "192.0.2.7");
    }
}
