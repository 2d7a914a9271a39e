//! The fallback where a port cannot be found (K2): it is chosen beforehand, and only has to be seen to be the process's own.
//!
//! What this host does not show is not held against the process: nobody listened there before its spawn, and its gate
//! trusts nobody without the right certificate.

use super::choice::{self, Choice};
use super::{Listener, ended_early, holder_of, listeners, sockets_of, too_many};
use crate::process::is_alive;
use berth_actors::identity::Identity;
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;

/// What can be seen of a process and of the host's sockets; an error where this account may not look.
struct Seen {
    own: io::Result<HashSet<u64>>,
    all: io::Result<Vec<Listener>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    NotYet,
    Own,
    /// It listens elsewhere as well.
    Many(Vec<u16>),
    Stranger,
}

/// Whether `identity` listens at `address`; false: not yet. Blocking.
pub(super) fn is_own(identity: &Identity, address: SocketAddr) -> Result<bool, String> {
    if !is_alive(identity) {
        return Err(ended_early(identity));
    }
    let seen = Seen { own: sockets_of(identity.pid), all: listeners() };
    // The pid may have been reused while its files were read.
    if !is_alive(identity) {
        return Err(ended_early(identity));
    }
    match judge(&seen, address) {
        Verdict::NotYet => Ok(false),
        Verdict::Own => Ok(true),
        Verdict::Many(ports) => Err(too_many(identity, &ports)),
        Verdict::Stranger => {
            let holder = occupant(address).unwrap_or_else(|| "another process, which has left it".to_owned());
            Err(format!(
                "{address}, the port of {identity}, is taken by {holder}: stop that one, or choose another in [kcp] ports"
            ))
        }
    }
}

fn judge(seen: &Seen, address: SocketAddr) -> Verdict {
    let Ok(all) = &seen.all else { return Verdict::Own };
    let mut there = all.iter().filter(|listener| choice::collide(listener.address, address)).peekable();
    let Ok(own) = &seen.own else {
        return if there.peek().is_some() { Verdict::Own } else { Verdict::NotYet };
    };
    let is_own = |listener: &&Listener| own.contains(&listener.inode);
    match choice::among(all.iter().filter(is_own).map(|listener| listener.address)) {
        Choice::Many(ports) => Verdict::Many(ports),
        _ if there.clone().any(|listener| is_own(&listener)) => Verdict::Own,
        _ if there.next().is_some() => Verdict::Stranger,
        _ => Verdict::NotYet,
    }
}

/// Who listens at `address`, as far as this account may see. Blocking.
pub fn occupant(address: SocketAddr) -> Option<String> {
    let taken = || listeners().ok()?.into_iter().find(|listener| choice::collide(listener.address, address));
    holder_of(address)
        .map(|holder| holder.to_string())
        .or_else(|| taken().map(|_| "a process that this account cannot see".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: &str = "127.0.0.1:16440";

    fn seen(own: &[u64], all: &[(&str, u64)]) -> Seen {
        let listener =
            |(address, inode): &(&str, u64)| Listener { address: address.parse().unwrap(), inode: *inode };
        Seen { own: Ok(own.iter().copied().collect()), all: Ok(all.iter().map(listener).collect()) }
    }

    fn judged(seen: &Seen) -> Verdict {
        judge(seen, WANTED.parse().unwrap())
    }

    #[test]
    fn the_port_is_awaited_and_then_seen_to_be_its_own() {
        assert_eq!(judged(&seen(&[7], &[])), Verdict::NotYet);
        assert_eq!(judged(&seen(&[7], &[("127.0.0.1:99", 3)])), Verdict::NotYet);
        assert_eq!(judged(&seen(&[7], &[(WANTED, 7), ("127.0.0.1:99", 3)])), Verdict::Own);
        assert_eq!(judged(&seen(&[7], &[("0.0.0.0:16440", 7)])), Verdict::Own);
    }

    #[test]
    fn a_stranger_on_the_port_and_a_second_port_are_errors() {
        assert_eq!(judged(&seen(&[7], &[(WANTED, 8)])), Verdict::Stranger);
        let two = seen(&[7, 8], &[(WANTED, 7), ("127.0.0.1:99", 8)]);
        assert_eq!(judged(&two), Verdict::Many(vec![99, 16440]));
    }

    #[test]
    fn what_the_host_does_not_show_is_not_held_against_it() {
        let hidden = || Err(io::Error::from(io::ErrorKind::PermissionDenied));
        assert_eq!(judged(&Seen { own: hidden(), ..seen(&[], &[(WANTED, 7)]) }), Verdict::Own);
        assert_eq!(judged(&Seen { own: hidden(), ..seen(&[], &[]) }), Verdict::NotYet);
        assert_eq!(
            judged(&Seen { all: Err(io::Error::other("no netlink")), ..seen(&[7], &[]) }),
            Verdict::Own
        );
    }
}
