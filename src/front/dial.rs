//! The usual way to a server: the target of the moment is on this host and accepts while it is dialled. Where it does not,
//! the client waits in the [`super::lobby`], which dials with patience.

use super::shared::Shared;
use super::slots::Member;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, getpeername, getsockname, socket_with};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

/// A connected server and its place in its slot; `None` where that takes waiting.
pub(super) fn at_once(shared: &Shared) -> Option<(OwnedFd, Member)> {
    let target = shared.target()?;
    let server = connected(target.1).filter(|server| server.as_raw_fd() < shared.config.descriptor_line)?;
    Some((server, shared.join(target)?))
}

/// On loopback the handshake is over when connect(2) returns, although it says that it has only begun.
fn connected(address: SocketAddr) -> Option<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let server = socket_with(family, SocketType::STREAM, flags, None).ok()?;
    match connect(&server, &address) {
        Ok(()) | Err(rustix::io::Errno::INPROGRESS) => (),
        Err(_) => return None,
    }
    // There is no peer before the handshake is over.
    getpeername(&server).ok()??;
    (!is_itself(&server, address)).then_some(server)
}

/// The target's port may lie in the ephemeral range: with nobody listening there the kernel can choose that very port for
/// our side and join the socket to itself.
fn is_itself(server: &OwnedFd, address: SocketAddr) -> bool {
    getsockname(server).map(SocketAddr::try_from).is_ok_and(|ours| ours == Ok(address))
}
