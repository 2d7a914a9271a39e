//! Finds a server for a client that [`super::dial`] found none for: dials the target of the moment before a byte is relayed,
//! dials again when it refuses or has changed, parks the client while there is none. Never gives a client to a slot that was
//! replaced while it was dialled.

use super::shared::{Shared, Target};
use super::slots::Member;
use berth_actors::identity::SlotName;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Bytes read from a parked client: room for a ClientHello. With more than that unread it cannot be seen to leave, and
/// waits for the park limit.
const EARLY_BYTES: usize = 16 << 10;

/// A server for a client.
#[derive(Debug)]
pub(super) struct Found {
    pub server: TcpStream,
    pub member: Member,
    /// What the client sent while it was parked.
    pub early: Vec<u8>,
}

/// Why a client was not served.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unserved {
    #[error("no slot accepted the connection within {} s", .0.as_secs())]
    ParkedTooLong(Duration),
    #[error("no slot serves, and {0} clients wait already")]
    ParkedCap(usize),
    #[error("the client left while it was parked")]
    ClientLeft,
}

/// Waits for a server for `client`, up to the park limit.
pub(super) async fn find(client: &TcpStream, shared: &Shared) -> Result<Found, Unserved> {
    let config = &shared.config;
    let give_up = Instant::now() + config.park_limit;
    let mut targets = shared.targets();
    let mut early = Vec::new();
    let mut pause = config.redial_first;
    let mut parked = None;
    loop {
        let target = *targets.borrow_and_update();
        let retry = match target {
            None => None,
            Some(target) => match dial(target, shared, &mut targets).await {
                Dialled::Server(server, member) => return Ok(Found { server, member, early }),
                Dialled::TargetChanged => {
                    pause = config.redial_first;
                    continue;
                }
                Dialled::Refused(error) => {
                    tracing::debug!(slot = %target.0, address = %target.1, %error, "the target does not accept");
                    Some(pause)
                }
            },
        };
        if parked.is_none() {
            let place = Parked::new(&shared.parked, config.max_parked);
            parked = Some(place.ok_or(Unserved::ParkedCap(config.max_parked))?);
        }
        let again = async {
            match retry {
                Some(pause) => sleep(pause).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // The sender lives in `shared`, so this is a new target.
            _ = targets.changed() => pause = config.redial_first,
            () = again => pause = config.redial_longest.min(pause * 2),
            () = left(client, &mut early) => return Err(Unserved::ClientLeft),
            () = sleep_until(give_up) => return Err(Unserved::ParkedTooLong(config.park_limit)),
        }
    }
}

enum Dialled {
    Server(TcpStream, Member),
    Refused(io::Error),
    TargetChanged,
}

async fn dial(
    target: (SlotName, SocketAddr),
    shared: &Shared,
    targets: &mut watch::Receiver<Target>,
) -> Dialled {
    let connected = tokio::select! {
        connected = timeout(shared.config.dial_deadline, connect(target.1, shared)) => connected,
        _ = targets.changed() => return Dialled::TargetChanged,
    };
    match connected {
        Ok(Ok(server)) => match shared.join(target) {
            Some(member) => Dialled::Server(server, member),
            None => Dialled::TargetChanged,
        },
        Ok(Err(error)) => Dialled::Refused(error),
        Err(elapsed) => Dialled::Refused(elapsed.into()),
    }
}

async fn connect(address: SocketAddr, shared: &Shared) -> io::Result<TcpStream> {
    let server = TcpStream::connect(address).await?;
    if server.as_raw_fd() >= shared.config.descriptor_line {
        return Err(rustix::io::Errno::MFILE.into());
    }
    // The slot's port may lie in the ephemeral range: with nobody listening there the kernel can choose that very port for
    // our side and join the socket to itself.
    if server.local_addr()? == server.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(server)
}

/// Resolves when the client has closed its side. Cancel-safe: what was read is in `early`.
async fn left(client: &TcpStream, early: &mut Vec<u8>) {
    let mut chunk = [0; 4096];
    while early.len() < EARLY_BYTES {
        if client.readable().await.is_err() {
            return;
        }
        match client.try_read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => early.extend_from_slice(&chunk[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
            Err(_) => return,
        }
    }
    std::future::pending::<()>().await;
}

/// Counts a parked client for as long as it lives.
struct Parked<'a>(&'a watch::Sender<u64>);

impl<'a> Parked<'a> {
    /// `None`: as many as may wait do.
    fn new(count: &'a watch::Sender<u64>, most: usize) -> Option<Self> {
        let has_room = count.send_if_modified(|count| {
            let has_room = *count < most as u64;
            *count += u64::from(has_room);
            has_room
        });
        has_room.then(|| Self(count))
    }
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
