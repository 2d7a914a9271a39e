//! The accept loop: a permit first, then a client, then a task of its own for it. It never reads or dials.

use super::session;
use super::shared::Shared;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

/// Pause after the host ran out of something: long enough for a connection to end, short against a client's patience.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Accepts until it is dropped.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let permits = Arc::new(Semaphore::new(shared.config.max_connections));
    let mut trouble = Trouble::default();
    loop {
        // Before accept, so that a client over the cap waits in the kernel and costs no descriptor.
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((client, _)) => {
                trouble = Trouble::default();
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    session::serve(client, &shared).await;
                    drop(permit);
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
