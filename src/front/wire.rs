//! A TCP socket as the relay uses it: non-blocking reads and writes, the FIN, and the two things a drain needs besides (a
//! look into the receive queue, the cork). The trait exists so that the relay can be tested byte by byte without sockets.

use super::config::Keepalive;
use rustix::net::{RecvFlags, Shutdown, recv, shutdown, sockopt};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

pub(super) trait Wire {
    /// `Ok(0)` is the peer's FIN.
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>>;
    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
    /// Sends the FIN, in one segment with the last bytes where the wire is corked.
    fn finish(&mut self);
    /// From now on partial segments wait for `finish`.
    fn cork(&mut self);
    /// The receive queue holds neither a byte nor a FIN nor an error.
    fn is_silent(&self) -> bool;
}

impl Wire for TcpStream {
    fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut into = ReadBuf::new(into);
        ready!(AsyncRead::poll_read(Pin::new(self), cx, &mut into))?;
        Poll::Ready(Ok(into.filled().len()))
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        AsyncWrite::poll_write(Pin::new(self), cx, bytes)
    }

    fn finish(&mut self) {
        // ENOTCONN: the peer reset it, which the next read reports.
        let _ = shutdown(&*self, Shutdown::Write);
    }

    fn cork(&mut self) {
        // A socket that cannot be corked sends the FIN a little later: a small race instead of none.
        let _ = sockopt::set_tcp_cork(&*self, true);
    }

    fn is_silent(&self) -> bool {
        let looked = recv(self, &mut [0_u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(looked, Err(rustix::io::Errno::AGAIN))
    }
}

/// Sets what every socket of the front has: no Nagle delay, and an end for a peer that vanished.
pub(super) fn tune(socket: &TcpStream, keepalive: Keepalive) -> io::Result<()> {
    let timeout = u32::try_from(keepalive.user_timeout.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, keepalive.idle)?;
    sockopt::set_tcp_keepintvl(socket, keepalive.interval)?;
    sockopt::set_tcp_keepcnt(socket, keepalive.probes)?;
    sockopt::set_tcp_user_timeout(socket, timeout)?;
    Ok(())
}

/// Ends a connection that was never relayed: FIN, then reads away what the client sent, so that it sees an end and no RST.
pub(super) async fn dismiss(mut client: TcpStream, linger: Duration) {
    client.finish();
    let mut sink = [0; 4096];
    let _ = tokio::time::timeout(linger, async { while matches!(client.read(&mut sink).await, Ok(1..)) {} })
        .await;
}
