//! A TCP socket as the relay uses it: non-blocking reads and writes, the FIN, and the two things a drain needs besides (a
//! look into the receive queue, the cork). The trait exists so that the relay can be tested byte by byte without sockets.

use super::config::Keepalive;
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown, recv, send, shutdown, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// Where `Pending` is returned, whoever owns the wire is told when it has changed.
pub(super) trait Wire {
    /// `Ok(0)` is the peer's FIN.
    fn read(&mut self, into: &mut [u8]) -> Poll<io::Result<usize>>;
    /// The next read is known to be the FIN: what was read last was all.
    fn at_end(&self) -> bool;
    /// `then_finish`: if all of it is taken, [`Wire::finish`] follows at once, and both may share a segment.
    fn write(&mut self, bytes: &[u8], then_finish: bool) -> Poll<io::Result<usize>>;
    /// Sends the FIN, in one segment with the last bytes where the wire is corked.
    fn finish(&mut self);
    /// From now on partial segments wait for `finish`.
    fn cork(&mut self);
    /// The receive queue holds neither a byte nor a FIN nor an error.
    fn is_silent(&self) -> bool;
}

/// A connected socket whose readiness is remembered, so that no call is made that is known to find nothing: edge-triggered
/// epoll tells every change once, and a read or write that was cut short tells that the queue is now empty or full.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact about the socket by itself; all combinations occur"
)]
pub(super) struct Socket {
    fd: OwnedFd,
    readable: bool,
    writable: bool,
    /// The peer's FIN is behind what is in the queue.
    fin_queued: bool,
    /// All before the FIN was read.
    fin_reached: bool,
    wrote: bool,
    has_no_delay: bool,
    /// Epoll reports room for more bytes too. Most sockets never run out of it, and asking would wake the worker at once.
    watched_for_room: bool,
}

impl Socket {
    /// A non-blocking socket that is registered with epoll before its first read, and has room.
    pub(super) fn new(fd: OwnedFd) -> Self {
        Self {
            fd,
            readable: false,
            writable: true,
            fin_queued: false,
            fin_reached: false,
            wrote: false,
            has_no_delay: false,
            watched_for_room: false,
        }
    }

    /// What epoll reported.
    pub(super) fn note(&mut self, ready: EventFlags) {
        let failed = ready.contains(EventFlags::ERR);
        self.readable |= ready.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP) || failed;
        self.writable |= ready.intersects(EventFlags::OUT | EventFlags::HUP) || failed;
        // A reset has no place in the queue: only a read tells it from an end.
        self.fin_queued = (self.fin_queued || ready.contains(EventFlags::RDHUP)) && !failed;
    }

    /// True once: from now on it must be watched for room.
    pub(super) fn lacks_room(&mut self) -> bool {
        let lacks = !self.writable && !self.watched_for_room;
        self.watched_for_room |= lacks;
        lacks
    }

    /// Before the first write Nagle delays nothing, and many connections never make a second.
    fn stop_delays(&mut self) {
        if self.wrote && !self.has_no_delay {
            self.has_no_delay = true;
            // A socket that cannot is a little slower.
            let _ = sockopt::set_tcp_nodelay(&self.fd, true);
        }
        self.wrote = true;
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Wire for Socket {
    fn read(&mut self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.fin_reached {
            return Poll::Ready(Ok(0));
        }
        if !self.readable {
            return Poll::Pending;
        }
        let room = into.len();
        match rustix::io::retry_on_intr(|| recv(&self.fd, &mut *into, RecvFlags::DONTWAIT)) {
            Ok((_, count)) => {
                if count == 0 || count < room && self.fin_queued {
                    self.fin_reached = true;
                } else if count < room {
                    self.readable = false;
                }
                Poll::Ready(Ok(count))
            }
            Err(Errno::AGAIN) => {
                self.readable = false;
                Poll::Pending
            }
            Err(errno) => Poll::Ready(Err(errno.into())),
        }
    }

    fn at_end(&self) -> bool {
        self.fin_reached
    }

    fn write(&mut self, bytes: &[u8], then_finish: bool) -> Poll<io::Result<usize>> {
        if !self.writable {
            return Poll::Pending;
        }
        self.stop_delays();
        let more = if then_finish { SendFlags::MORE } else { SendFlags::empty() };
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL | more;
        match rustix::io::retry_on_intr(|| send(&self.fd, bytes, flags)) {
            Ok(count) => {
                self.writable = count == bytes.len();
                Poll::Ready(Ok(count))
            }
            Err(Errno::AGAIN) => {
                self.writable = false;
                Poll::Pending
            }
            Err(errno) => Poll::Ready(Err(errno.into())),
        }
    }

    fn finish(&mut self) {
        // ENOTCONN: the peer reset it, which the next read reports.
        let _ = shutdown(&self.fd, Shutdown::Write);
    }

    fn cork(&mut self) {
        // A socket that cannot be corked sends the FIN a little later: a small race instead of none.
        let _ = sockopt::set_tcp_cork(&self.fd, true);
    }

    fn is_silent(&self) -> bool {
        let looked = recv(&self.fd, &mut [0_u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(looked, Err(Errno::AGAIN))
    }
}

/// Sets what every socket of the front has that lives for a while: no Nagle delay, and an end for a peer that vanished.
pub(super) fn tune(socket: impl AsFd, keepalive: Keepalive) -> io::Result<()> {
    let timeout = u32::try_from(keepalive.user_timeout.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, keepalive.idle)?;
    sockopt::set_tcp_keepintvl(&socket, keepalive.interval)?;
    sockopt::set_tcp_keepcnt(&socket, keepalive.probes)?;
    sockopt::set_tcp_user_timeout(&socket, timeout)?;
    Ok(())
}

/// Ends a connection that was never relayed: FIN, then reads away what the client sent, so that it sees an end and no RST.
pub(super) async fn dismiss(mut client: TcpStream, linger: Duration) {
    let _ = shutdown(&client, Shutdown::Write);
    let mut sink = [0; 4096];
    let _ = tokio::time::timeout(linger, async { while matches!(client.read(&mut sink).await, Ok(1..)) {} })
        .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::epoll;
    use std::io::Write;
    use std::net::{Shutdown, TcpListener, TcpStream};

    /// A socket as a worker has it, with its epoll, and the far end of it.
    struct Pair {
        near: Socket,
        far: TcpStream,
        epoll: OwnedFd,
    }

    impl Pair {
        fn new() -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let near = listener.accept().unwrap().0;
            near.set_nonblocking(true).unwrap();
            let near = Socket::new(near.into());
            let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
            let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
            epoll::add(&epoll, &near, epoll::EventData::new_u64(0), flags).unwrap();
            Self { near, far, epoll }
        }

        /// Waits for the next change and notes it.
        fn noted(&mut self) -> &mut Self {
            let mut events =
                [epoll::Event { flags: EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
            epoll::wait(&self.epoll, &mut events[..], None).unwrap();
            self.near.note(events[0].flags);
            self
        }

        fn read(&mut self, room: usize) -> Poll<io::Result<usize>> {
            self.near.read(&mut vec![0; room])
        }
    }

    fn is_done(polled: &Poll<io::Result<usize>>, count: usize) -> bool {
        matches!(polled, Poll::Ready(Ok(done)) if *done == count)
    }

    #[test]
    fn a_byte_a_fin_and_a_reset_all_end_the_silence_and_looking_takes_nothing() {
        let mut pair = Pair::new();
        assert!(pair.near.is_silent());
        pair.far.write_all(b"x").unwrap();
        assert!(!pair.noted().near.is_silent());
        assert!(is_done(&pair.read(8), 1));
        assert!(pair.near.is_silent());
        pair.far.shutdown(Shutdown::Write).unwrap();
        assert!(!pair.noted().near.is_silent());

        let mut pair = Pair::new();
        assert!(is_done(&pair.near.write(b"unread, so closing resets", false), 25));
        while pair.far.peek(&mut [0; 32]).unwrap() < 25 {}
        let Pair { near, far, epoll } = pair;
        drop(far);
        let mut events = [epoll::Event { flags: EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        epoll::wait(&epoll, &mut events[..], None).unwrap();
        assert!(!near.is_silent());
    }

    #[test]
    fn an_end_behind_the_last_bytes_is_known_with_them() {
        let mut pair = Pair::new();
        pair.far.write_all(b"the last").unwrap();
        pair.far.shutdown(Shutdown::Write).unwrap();
        while !pair.noted().near.fin_queued {}
        assert!(is_done(&pair.read(4), 4));
        assert!(!pair.near.at_end());
        assert!(is_done(&pair.read(64), 4));
        assert!(pair.near.at_end());
        assert!(is_done(&pair.read(64), 0));
    }

    #[test]
    fn an_end_that_comes_after_a_short_read_is_told_by_the_next_event() {
        let mut pair = Pair::new();
        pair.far.write_all(b"x").unwrap();
        assert!(is_done(&pair.noted().read(64), 1));
        assert!(pair.read(64).is_pending() && !pair.near.at_end());
        pair.far.shutdown(Shutdown::Write).unwrap();
        assert!(is_done(&pair.noted().read(64), 0));
    }

    #[test]
    fn bytes_of_which_the_end_follows_at_once_arrive_whole() {
        let mut pair = Pair::new();
        assert!(is_done(&pair.near.write(b"goodbye", true), 7));
        pair.near.finish();
        let mut got = String::new();
        io::Read::read_to_string(&mut pair.far, &mut got).unwrap();
        assert_eq!(got, "goodbye");
    }

    #[test]
    fn a_full_socket_asks_once_to_be_watched_for_room_and_no_delay_is_set_before_the_second_write() {
        let mut pair = Pair::new();
        let chunk = vec![7; 1 << 20];
        assert!(matches!(pair.near.write(&chunk[..1], false), Poll::Ready(Ok(1))));
        assert!(!sockopt::tcp_nodelay(&pair.near).unwrap());
        while pair.near.write(&chunk, false).is_ready() {}
        assert!(sockopt::tcp_nodelay(&pair.near).unwrap());
        assert!(pair.near.lacks_room() && !pair.near.lacks_room());
    }

    #[test]
    fn a_tuned_socket_finds_a_peer_that_vanished() {
        let Pair { near, .. } = Pair::new();
        tune(&near, Keepalive::default()).unwrap();
        assert!(sockopt::tcp_nodelay(&near).unwrap() && sockopt::socket_keepalive(&near).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&near).unwrap(), Keepalive::default().idle);
        assert_eq!(sockopt::tcp_user_timeout(&near).unwrap(), 60_000);
    }
}
