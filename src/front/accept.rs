//! Accepting: a permit first, then a client, then its peer's leave. A [`Door`] is one worker's share of the listening socket;
//! it never reads or dials.

use super::config::FrontConfig;
use super::peers::{Peer, Seat};
use super::refusals::Refusal;
use super::shared::Shared;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, acceptfrom_with};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout};

/// Pause after the host ran out of something: long enough for a connection to end, short against a client's patience.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

const OF_A_CLIENT: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// What an accepted client holds as long as it is here.
#[derive(Debug)]
pub(super) struct Place {
    _seat: Seat,
    _permit: OwnedSemaphorePermit,
}

/// Resolves when there is a place below the total cap, and fails where none was given back for as long as a client may wait.
pub(super) async fn place_free(places: &Semaphore, config: &FrontConfig) -> Result<(), Elapsed> {
    // The semaphore is never closed.
    timeout(config.park_limit, places.acquire()).await.map(drop)
}

/// What came of a knock.
#[derive(Debug)]
pub(super) enum Knock {
    Client(OwnedFd, Place),
    /// One who may not stay, or who had left already.
    Refused,
    Nobody,
    /// The door is shut until a place is free.
    Full,
}

/// The listening socket as one worker waits at it.
#[derive(Debug)]
pub(super) struct Door {
    listener: TcpListener,
    is_open: bool,
    trouble: Trouble,
    /// Shut for so long after the host ran out of something.
    opens_at: Option<Instant>,
}

impl Door {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, is_open: false, trouble: Trouble::default(), opens_at: None }
    }

    /// From now on `epoll` reports clients as `token`. Exclusively: one client wakes one of the workers.
    pub(super) fn open(&mut self, epoll: &OwnedFd, token: u64) -> io::Result<()> {
        if !self.is_open {
            let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
            epoll::add(epoll, &self.listener, EventData::new_u64(token), flags)?;
            self.is_open = true;
        }
        self.opens_at = None;
        Ok(())
    }

    pub(super) fn shut(&mut self, epoll: &OwnedFd) {
        if self.is_open {
            // It was added, so it can be deleted.
            let _ = epoll::delete(epoll, &self.listener);
            self.is_open = false;
        }
    }

    pub(super) fn opens_at(&self) -> Option<Instant> {
        self.opens_at
    }

    /// A place before the client, so that one over the cap waits in the kernel and costs no descriptor.
    pub(super) fn answer(
        &mut self,
        epoll: &OwnedFd,
        places: &Arc<Semaphore>,
        shared: &Shared,
        now: Instant,
    ) -> Knock {
        let Ok(permit) = Arc::clone(places).try_acquire_owned() else {
            self.shut(epoll);
            return Knock::Full;
        };
        let (client, from) = match acceptfrom_with(&self.listener, OF_A_CLIENT) {
            Ok(accepted) => accepted,
            // Another worker was faster.
            Err(Errno::AGAIN) => return Knock::Nobody,
            Err(errno) => return self.falter(epoll, errno, now),
        };
        let from = from.and_then(|from| SocketAddr::try_from(from).ok());
        match admit(&client, from.map_or(Ipv4Addr::UNSPECIFIED.into(), |from| from.ip()), shared) {
            Ok(seat) => {
                self.trouble = Trouble::default();
                Knock::Client(client, Place { _seat: seat, _permit: permit })
            }
            Err(Refusal::Descriptors) => self.falter(epoll, Errno::MFILE, now),
            Err(_) => Knock::Refused,
        }
    }

    fn falter(&mut self, epoll: &OwnedFd, errno: Errno, now: Instant) -> Knock {
        let error = io::Error::from(errno);
        let Some(pause) = self.trouble.pause_after(&error) else {
            tracing::debug!(%error, "a connection ended before it was accepted");
            return Knock::Refused;
        };
        tracing::warn!(%error, ?pause, "accepting pauses; raise the limits of the daemon or the host");
        self.shut(epoll);
        self.opens_at = Some(now + pause);
        Knock::Nobody
    }

    /// Closes whoever is in the kernel's queue: they would wait without end, and the queue would stay full of clients that have
    /// left.
    pub(super) fn turn_away(&self, shared: &Shared) {
        for _ in 0..shared.config.backlog {
            match accept_with(&self.listener, OF_A_CLIENT) {
                Ok(_closed) => shared.refusals.count(Refusal::TotalCap),
                Err(errno) if !is_exhaustion(&errno.into()) && errno != Errno::AGAIN => (),
                Err(_) => return,
            }
        }
    }
}

/// Whether the client may stay. A refused one is closed with nothing read.
fn admit(client: &OwnedFd, from: IpAddr, shared: &Shared) -> Result<Seat, Refusal> {
    let peer = Peer::from(from);
    let seat = if client.as_raw_fd() >= shared.config.descriptor_line {
        Err(Refusal::Descriptors)
    } else {
        shared.peers.seat(peer).ok_or(Refusal::PeerCap(peer))
    };
    seat.inspect_err(|refusal| shared.refusals.count(*refusal))
}

/// Failures of accept(2) in a row.
#[derive(Debug, Default)]
struct Trouble {
    exhaustions: u32,
}

impl Trouble {
    /// How long to leave the listener alone; `None`: accept again at once.
    fn pause_after(&mut self, error: &io::Error) -> Option<Duration> {
        is_exhaustion(error).then(|| {
            let pause = FIRST_PAUSE.saturating_mul(1_u32.checked_shl(self.exhaustions).unwrap_or(u32::MAX));
            self.exhaustions += 1;
            pause.min(LONGEST_PAUSE)
        })
    }
}

/// The host lacks something that only time brings back; accepting again at once would spin. Everything else is about the
/// one connection that failed (accept(2): ECONNABORTED, EPROTO and the network errors), but an unknown error is safer slow.
fn is_exhaustion(error: &io::Error) -> bool {
    const OF_ONE_CONNECTION: [Errno; 12] = [
        Errno::CONNABORTED,
        Errno::INTR,
        Errno::AGAIN,
        Errno::PROTO,
        Errno::PERM,
        Errno::NETDOWN,
        Errno::NOPROTOOPT,
        Errno::HOSTDOWN,
        Errno::NONET,
        Errno::HOSTUNREACH,
        Errno::OPNOTSUPP,
        Errno::NETUNREACH,
    ];
    Errno::from_io_error(error).is_none_or(|errno| !OF_ONE_CONNECTION.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exhaustion_pauses_accepting_longer_each_time_and_never_beyond_a_second() {
        let mut trouble = Trouble::default();
        let mut pause = |errno: Errno| trouble.pause_after(&errno.into());
        assert_eq!(pause(Errno::MFILE), Some(FIRST_PAUSE));
        assert_eq!(pause(Errno::NFILE), Some(FIRST_PAUSE * 2));
        assert_eq!(pause(Errno::NOBUFS), Some(FIRST_PAUSE * 4));
        assert!((0..100).all(|_| pause(Errno::MFILE) <= Some(LONGEST_PAUSE)));
        assert_eq!(pause(Errno::MFILE), Some(LONGEST_PAUSE));
    }

    #[test]
    fn an_aborted_connection_pauses_nothing() {
        for errno in [Errno::CONNABORTED, Errno::PROTO, Errno::INTR] {
            assert_eq!(Trouble::default().pause_after(&errno.into()), None);
        }
    }
}
