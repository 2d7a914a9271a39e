//! The control server: accepts on the socket, checks who is there, and lets the routes answer.
//!
//! It runs on the arbiter beside the actors, one task per connection; nothing here blocks it.

use super::daemon::DaemonDesk;
use super::events::EventHub;
use super::files::ClusterFiles;
use super::routes::{Backend, router};
use super::socket::{SocketFile, bind};
use super::{deadline, peer};
use actix::Recipient;
use axum::Router;
use berth_actors::message::Command;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Requests and streams at once. Operators and scripts on one host; past it the next one waits in the backlog.
const MOST_CONNECTIONS: usize = 128;

/// After an accept that failed: descriptors run out, and another try at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Why there is no control socket.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("listen on the control socket {path}: {source}")]
    Bind {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("a daemon answers on {path} already: stop it with `berth down`, or choose another --run-dir")]
    InUse { path: PathBuf },
    #[error("{path} exists and is no socket: remove it, or choose another --run-dir")]
    NotASocket { path: PathBuf },
    #[error(
        "the run directory {dir} (owner {owner}, mode {mode:04o}) can be changed by other users: \
         make it your own with mode 0700, or choose another --run-dir"
    )]
    SharedDirectory { dir: PathBuf, owner: u32, mode: u32 },
}

/// A bound control socket that nobody serves yet.
#[derive(Debug)]
pub struct ControlServer {
    listener: UnixListener,
    router: Router,
    ending: CancellationToken,
    /// Removes the socket when the server is gone.
    file: SocketFile,
}

impl ControlServer {
    /// Binds `path` (0600), replacing the socket of a dead daemon. Call it with the state directory's lock held, inside
    /// the arbiter. Clients wait in the backlog until [`Self::serve`].
    pub fn bind(
        path: &Path,
        daemon: DaemonDesk,
        tree: Recipient<Command>,
        files: Arc<dyn ClusterFiles>,
        events: EventHub,
    ) -> Result<Self, ControlError> {
        let (listener, file) = bind(path)?;
        let ending = CancellationToken::new();
        let router = router(Backend { daemon, tree, files, events, ending: ending.clone() });
        Ok(Self { listener, router, ending, file })
    }

    /// Serves until `shutdown`; then ends the streams, lets open requests be answered for a short while, and removes the
    /// socket. Dropping the future cuts every connection at once.
    pub async fn serve(self, shutdown: CancellationToken) {
        let mut connections = JoinSet::new();
        let permits = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            // Cancel-safe: a permit or a connection that was not yet returned stays where it is.
            let accepted = tokio::select! {
                () = shutdown.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                accepted = accept(&self.listener, &permits) => accepted,
            };
            match accepted {
                Ok((stream, permit)) if trusted(&stream) => {
                    let connection = converse(stream, self.router.clone(), self.ending.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(permit);
                    });
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(%error, "the control socket cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        // New clients must meet "no daemon", not a backlog that nobody will serve.
        drop(self.listener);
        drop(self.file);
        self.ending.cancel();
        let all = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(deadline::FAREWELL, all).await.is_err() {
            tracing::warn!("control connections were cut before their answer");
        }
    }
}

async fn accept(
    listener: &UnixListener,
    permits: &Arc<Semaphore>,
) -> io::Result<(UnixStream, tokio::sync::OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, permit))
}

fn trusted(stream: &UnixStream) -> bool {
    match stream.peer_cred() {
        Ok(peer) if peer::may_command(peer.uid(), rustix::process::geteuid().as_raw()) => true,
        Ok(peer) => {
            tracing::warn!(
                uid = peer.uid(),
                pid = peer.pid(),
                "refused a control connection of another user"
            );
            false
        }
        Err(error) => {
            tracing::warn!(%error, "refused a control connection without credentials");
            false
        }
    }
}

/// One connection from its first request to its end, or until `ending`.
pub(crate) async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    ending: CancellationToken,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(deadline::REQUEST_HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    // Cancel-safe: the connection is polled on by reference after the token has fired.
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = ending.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a control connection ended early");
    }
}
