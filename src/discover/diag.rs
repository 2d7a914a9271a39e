//! Listening sockets from the kernel's NETLINK_SOCK_DIAG: only those in state LISTEN, in one or two reads.
//!
//! Called by discovery. An error here means that the kernel lacks the module, and the caller has a fallback.

use super::Listener;
use netlink_packet_core::{NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload};
use netlink_packet_sock_diag::inet::{ExtensionFlags, InetRequest, SocketId, StateFlags};
use netlink_packet_sock_diag::{AF_INET, AF_INET6, IPPROTO_TCP, SockDiagMessage};
use netlink_sys::protocols::NETLINK_SOCK_DIAG;
use netlink_sys::{Socket, SocketAddr as NetlinkAddr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The kernel fills the answer while the reader waits in recv; an answer that does not come is a kernel bug.
const PATIENCE: Duration = Duration::from_secs(1);
/// A dump's datagram has at most 32 KiB.
const DATAGRAM: usize = 64 * 1024;
/// netlink(7): each message starts at a multiple of 4.
const ALIGNMENT: usize = 4;

/// Blocking, for well under a millisecond.
pub(super) fn listeners() -> io::Result<Vec<Listener>> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&NetlinkAddr::new(0, 0))?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    let mut found = Vec::new();
    for (family, any) in [(AF_INET, SocketId::new_v4()), (AF_INET6, SocketId::new_v6())] {
        socket.send(&request(family, any), 0)?;
        let mut datagram = Vec::with_capacity(DATAGRAM);
        loop {
            datagram.clear();
            socket.recv(&mut datagram, 0)?;
            if read(&datagram, &mut found)? == More::No {
                break;
            }
        }
    }
    Ok(found)
}

fn request(family: u8, socket_id: SocketId) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let listening = InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::empty(),
        states: StateFlags::LISTEN,
        socket_id,
    };
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(listening).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum More {
    Yes,
    No,
}

/// Adds the sockets in one datagram to `found`.
pub(super) fn read(datagram: &[u8], found: &mut Vec<Listener>) -> io::Result<More> {
    let mut rest = datagram;
    while !rest.is_empty() {
        let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest).map_err(io::Error::other)?;
        let length = usize::try_from(message.header.length).map_err(io::Error::other)?;
        match message.payload {
            NetlinkPayload::Done(_) => return Ok(More::No),
            // Its own `to_io` negates, which the lowest number of all does not survive.
            NetlinkPayload::Error(error) => {
                return Err(io::Error::from_raw_os_error(error.raw_code().saturating_abs()));
            }
            NetlinkPayload::Overrun(_) => {
                return Err(io::Error::other("the kernel dropped a part of the answer"));
            }
            NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                let id = &response.header.socket_id;
                let address = SocketAddr::new(id.source_address, id.source_port);
                found.push(Listener { address, inode: response.header.inode.into() });
            }
            _ => {}
        }
        rest = rest.get(length.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
    }
    Ok(More::Yes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_garbled_answer_is_an_error_or_ends(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let _ = read(&bytes, &mut Vec::new());
        }
    }

    #[test]
    fn both_ways_to_list_see_the_same_socket() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen = |all: Vec<Listener>| all.into_iter().find(|listener| listener.address == address);
        let through_diag = seen(listeners().unwrap());
        assert!(through_diag.is_some());
        assert_eq!(through_diag, seen(super::super::proc_net::listeners().unwrap()));
    }
}
