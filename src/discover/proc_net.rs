//! Listening sockets from `/proc/net/tcp` and `tcp6`, for a kernel without sock_diag.
//!
//! Slower: the kernel prints every connection, too.

use super::Listener;
use procfs::net::TcpState;
use std::io;

/// Both families; one that this host does not have is empty.
pub(super) fn listeners() -> io::Result<Vec<Listener>> {
    let v4 = procfs::net::tcp().map_err(io::Error::other)?;
    let v6 = procfs::net::tcp6().unwrap_or_default();
    let listening = v4.into_iter().chain(v6).filter(|entry| entry.state == TcpState::Listen);
    Ok(listening.map(|entry| Listener { address: entry.local_address, inode: entry.inode }).collect())
}
