//! `[metrics] listen`: `GET /metrics` over plain HTTP, for a Prometheus that cannot reach a unix socket. Nothing else is served there,
//! nobody is asked who they are, and it runs on the arbiter beside the control API.

use super::{CONTENT_TYPE, exposition};
use crate::control::server::converse;
use actix::Recipient;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use berth_actors::message::{Command, Reply};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Scrapes at once. One Prometheus keeps one connection open; each scrape reads all of `/proc`, so a crowd has to wait.
const MOST_CONNECTIONS: usize = 8;
/// A scrape, and the silence between two on one connection: Prometheus gives up after 10 s, and comes once a minute.
const CONNECTION: Duration = Duration::from_mins(5);
/// After an accept that failed: descriptors run out, and another try at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug, thiserror::Error)]
#[error(
    "metrics cannot be served on {listen}: {source}; choose another [metrics] listen, or stop who has it"
)]
pub struct MetricsError {
    listen: SocketAddr,
    source: io::Error,
}

/// A bound address that nobody serves yet.
#[derive(Debug)]
pub struct MetricsServer {
    listener: TcpListener,
    router: Router,
}

impl MetricsServer {
    /// Call it inside the arbiter.
    pub async fn bind(listen: SocketAddr, tree: Recipient<Command>) -> Result<Self, MetricsError> {
        let listener = TcpListener::bind(listen).await.map_err(|source| MetricsError { listen, source })?;
        let router = Router::new().route("/metrics", get(metrics)).with_state(tree);
        Ok(Self { listener, router })
    }

    /// With the real port where 0 was asked for.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown`.
    pub async fn serve(self, shutdown: CancellationToken) {
        let permits = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            // Cancel-safe: a connection that was not returned is still in the queue.
            let accepted = tokio::select! {
                () = shutdown.cancelled() => return,
                accepted = async {
                    let permit = Arc::clone(&permits).acquire_owned().await.map_err(io::Error::other)?;
                    self.listener.accept().await.map(|(stream, _)| (stream, permit))
                } => accepted,
            };
            match accepted {
                Ok((stream, permit)) => {
                    let conversation = converse(stream, self.router.clone(), shutdown.clone());
                    tokio::spawn(async move {
                        if tokio::time::timeout(CONNECTION, conversation).await.is_err() {
                            tracing::debug!("a metrics connection has had its time");
                        }
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "the metrics address cannot accept");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

async fn metrics(State(tree): State<Recipient<Command>>) -> Response {
    match tree.send(Command::Status).await {
        Ok(Ok(Reply::Status(status))) => {
            ([(header::CONTENT_TYPE, CONTENT_TYPE)], exposition(*status).await).into_response()
        }
        _ => (StatusCode::SERVICE_UNAVAILABLE, "the daemon is ending\n").into_response(),
    }
}
