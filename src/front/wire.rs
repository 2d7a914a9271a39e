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

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn a_byte_a_fin_and_a_reset_all_end_the_silence_and_looking_takes_nothing() {
        let (near, mut far) = pair().await;
        assert!(near.is_silent());
        far.write_all(b"x").await.unwrap();
        near.readable().await.unwrap();
        assert!(!near.is_silent());
        assert_eq!(near.try_read(&mut [0; 8]).unwrap(), 1);
        assert!(near.is_silent());
        far.shutdown().await.unwrap();
        near.readable().await.unwrap();
        assert!(!near.is_silent());

        let (mut near, far) = pair().await;
        near.write_all(b"unread, so closing resets").await.unwrap();
        far.readable().await.unwrap();
        drop(far);
        near.readable().await.unwrap();
        assert!(!near.is_silent());
    }

    #[tokio::test]
    async fn a_tuned_socket_finds_a_peer_that_vanished() {
        let (near, _far) = pair().await;
        tune(&near, Keepalive::default()).unwrap();
        assert!(sockopt::tcp_nodelay(&near).unwrap() && sockopt::socket_keepalive(&near).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&near).unwrap(), Keepalive::default().idle);
        assert_eq!(sockopt::tcp_user_timeout(&near).unwrap(), 60_000);
    }
}
