//! The accept loop: a permit first, then a client, then a task of its own for it. It never reads or dials.

use super::peers::{Peer, Seat};
use super::refusals::Refusal;
use super::session;
use super::shared::Shared;
use futures::FutureExt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::unconstrained;
use tokio::time::timeout;

/// Pause after the host ran out of something: long enough for a connection to end, short against a client's patience.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Accepts until it is dropped.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let permits = Arc::new(Semaphore::new(shared.config.max_connections));
    let mut trouble = Trouble::default();
    loop {
        // Before accept, so that a client over the cap waits in the kernel and costs no descriptor.
        let Some(permit) = permit(&permits, &listener, &shared).await else { return };
        let accepted = match listener.accept().await {
            Ok((client, from)) => match admit(&client, from, &shared) {
                Ok(seat) => Ok((client, seat)),
                Err(Refusal::Descriptors) => Err(rustix::io::Errno::MFILE.into()),
                Err(_) => continue,
            },
            Err(error) => Err(error),
        };
        match accepted {
            Ok((client, seat)) => {
                trouble = Trouble::default();
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    session::serve(client, &shared).await;
                    drop((seat, permit));
                });
            }
            Err(error) => match trouble.pause_after(&error) {
                None => tracing::debug!(%error, "a connection ended before it was accepted"),
                Some(pause) => {
                    tracing::warn!(%error, ?pause, "accepting pauses; raise the limits of the daemon or the host");
                    tokio::time::sleep(pause).await;
                }
            },
        }
    }
}

/// A place below the total cap. Where none was given back for as long as a client may wait, whoever is in the kernel's queue
/// is turned away: it would wait without end, and the queue would stay full of clients that have left.
async fn permit(
    permits: &Arc<Semaphore>,
    listener: &TcpListener,
    shared: &Shared,
) -> Option<OwnedSemaphorePermit> {
    if let Ok(permit) = Arc::clone(permits).try_acquire_owned() {
        return Some(permit);
    }
    loop {
        // Cancel-safe: a permit that was not returned stays where it is.
        match timeout(shared.config.park_limit, Arc::clone(permits).acquire_owned()).await {
            Ok(permit) => return permit.ok(),
            Err(_) => turn_away(listener, shared),
        }
    }
}

fn turn_away(listener: &TcpListener, shared: &Shared) {
    for _ in 0..shared.config.backlog {
        match unconstrained(listener.accept()).now_or_never() {
            Some(Ok(_closed)) => shared.refusals.count(Refusal::TotalCap),
            Some(Err(error)) if !is_exhaustion(&error) => (),
            Some(Err(_)) | None => return,
        }
    }
}

/// Whether the client may stay. A refused one is closed with nothing read.
fn admit(client: &TcpStream, from: SocketAddr, shared: &Shared) -> Result<Seat, Refusal> {
    let peer = Peer::from(from.ip());
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
    use rustix::io::Errno;
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
    use rustix::io::Errno;

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
