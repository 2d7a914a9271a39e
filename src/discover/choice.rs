//! The one address among a process's listening sockets, and whether two addresses are in each other's way.
//!
//! Pure. Called by discovery and by the holder search.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Choice {
    NoneYet,
    One(SocketAddr),
    /// Distinct ports, ascending.
    Many(Vec<u16>),
}

/// One port is one choice, however many sockets share it (both families, SO_REUSEPORT); IPv4 is preferred then.
pub(super) fn among(addresses: impl Iterator<Item = SocketAddr>) -> Choice {
    let mut by_port: BTreeMap<u16, SocketAddr> = BTreeMap::new();
    for address in addresses {
        let kept = by_port.entry(address.port()).or_insert(address);
        if address.is_ipv4() && !kept.is_ipv4() {
            *kept = address;
        }
    }
    match (by_port.len(), by_port.first_key_value()) {
        (0, _) | (_, None) => Choice::NoneYet,
        (1, Some((_, address))) => Choice::One(reachable(*address)),
        _ => Choice::Many(by_port.into_keys().collect()),
    }
}

/// Where a client on this host connects to. A listener on `::` takes IPv4 too, as every component here leaves it.
fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = unmapped(address.ip());
    let reachable = if ip.is_unspecified() { IpAddr::from(Ipv4Addr::LOCALHOST) } else { ip };
    SocketAddr::new(reachable, address.port())
}

/// Whether a bind to `wanted` fails because of a listener on `taken`.
pub(super) fn collide(taken: SocketAddr, wanted: SocketAddr) -> bool {
    let (one, other) = (unmapped(taken.ip()), unmapped(wanted.ip()));
    let any_of_both = |ip: IpAddr| ip.is_unspecified() && ip.is_ipv6();
    let any_of_family = |any: IpAddr, ip: IpAddr| any.is_unspecified() && any.is_ipv4() == ip.is_ipv4();
    taken.port() == wanted.port()
        && (one == other
            || any_of_both(one)
            || any_of_both(other)
            || any_of_family(one, other)
            || any_of_family(other, one))
}

/// An IPv4 address in its IPv6 form is the IPv4 address.
fn unmapped(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn among_all(texts: &[&str]) -> Choice {
        among(texts.iter().map(|text| address(text)))
    }

    #[test]
    fn one_port_on_both_families_is_one_address() {
        assert_eq!(among_all(&[]), Choice::NoneYet);
        assert_eq!(among_all(&["[::1]:80", "127.0.0.1:80"]), Choice::One(address("127.0.0.1:80")));
        assert_eq!(among_all(&["0.0.0.0:80"]), Choice::One(address("127.0.0.1:80")));
        assert_eq!(among_all(&["[::]:80"]), Choice::One(address("127.0.0.1:80")));
        assert_eq!(among_all(&["[::ffff:127.0.0.1]:80"]), Choice::One(address("127.0.0.1:80")));
        assert_eq!(among_all(&["[::1]:80"]), Choice::One(address("[::1]:80")));
    }

    #[test]
    fn a_wildcard_is_in_everybodys_way_and_two_hosts_in_nobodys() {
        let collides = |taken, wanted| collide(address(taken), address(wanted));
        assert!(collides("0.0.0.0:80", "127.0.0.1:80") && collides("127.0.0.1:80", "0.0.0.0:80"));
        assert!(collides("[::]:80", "127.0.0.1:80") && collides("127.0.0.1:80", "127.0.0.1:80"));
        assert!(!collides("127.0.0.1:80", "127.0.0.2:80"));
        assert!(!collides("127.0.0.1:80", "127.0.0.1:81"));
        assert!(!collides("0.0.0.0:80", "[::1]:80"));
    }

    proptest! {
        #[test]
        fn every_distinct_port_is_named_once(ports in proptest::collection::vec(1_u16.., 0..20)) {
            let mut distinct = ports.clone();
            distinct.sort_unstable();
            distinct.dedup();
            let choice = among(ports.iter().map(|port| SocketAddr::from(([127, 0, 0, 1], *port))));
            match distinct.as_slice() {
                [] => prop_assert_eq!(choice, Choice::NoneYet),
                [port] => prop_assert_eq!(choice, Choice::One(SocketAddr::from(([127, 0, 0, 1], *port)))),
                _ => prop_assert_eq!(choice, Choice::Many(distinct)),
            }
        }
    }
}
