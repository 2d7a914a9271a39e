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

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::bind;
    use std::net::TcpListener;

    const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

    #[test]
    fn a_listening_port_gives_a_connected_server_at_once_and_a_closed_one_none() {
        let listener = TcpListener::bind(ANY).unwrap();
        let address = listener.local_addr().unwrap();
        let server = connected(address).unwrap();
        assert_eq!(
            listener.accept().unwrap().1,
            SocketAddr::try_from(getsockname(&server).unwrap()).unwrap()
        );
        drop((server, listener));
        assert!(connected(address).is_none());
    }

    #[test]
    fn a_socket_that_met_itself_is_told_from_a_server() {
        let socket =
            socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&socket, &ANY).unwrap();
        let address = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
        connect(&socket, &address).unwrap();
        assert!(getpeername(&socket).unwrap().is_some() && is_itself(&socket, address));
    }
}
