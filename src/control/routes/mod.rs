//! The routes, each group under its own deadline. Streams have none: they end with their reader or the server.

mod backups;
mod clusters;
mod daemon;
mod kcp;
mod nodes;
mod services;
mod streams;
mod tree;

use super::answer::Problem;
use super::daemon::DaemonDesk;
use super::deadline;
use super::events::EventHub;
use super::files::ClusterFiles;
use actix::{MailboxError, Recipient};
use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use berth_actors::message::{Command, Refusal, Reply};
use berth_actors::status::TreeStatus;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The largest body of any request is a cluster's name.
const LARGEST_BODY: usize = 16 << 10;

/// What the routes ask.
pub(super) struct Backend {
    pub(super) daemon: DaemonDesk,
    pub(super) tree: Recipient<Command>,
    pub(super) files: Arc<dyn ClusterFiles>,
    pub(super) events: EventHub,
    /// Ends the streams, which would otherwise outlast the server.
    pub(super) ending: CancellationToken,
}

type Shared = Arc<Backend>;

impl Backend {
    async fn ask(&self, command: Command) -> Result<Reply, Problem> {
        let gone = |error: MailboxError| {
            let reason = format!("the supervision tree does not answer ({error}): the daemon is ending");
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, Refusal::Failed(reason))
        };
        Ok(self.tree.send(command).await.map_err(gone)??)
    }

    async fn status(&self) -> Result<TreeStatus, Problem> {
        match self.ask(Command::Status).await? {
            Reply::Status(mut status) => {
                status.upkeep = self.files.upkeep(&status).await;
                let (holdings, remarks) = self.files.holdings();
                status.holdings = holdings;
                status.remarks.extend(remarks);
                Ok(*status)
            }
            other => Err(unexpected(&other)),
        }
    }
}

fn unexpected(reply: &Reply) -> Problem {
    let kind = match reply {
        Reply::Done => "done",
        Reply::Status(_) => "a status",
        Reply::Handover(_) => "a handover",
        Reply::Plan(_) => "a plan",
        Reply::History(_) => "a history",
        Reply::Adoption(_) => "the plan of an adoption",
    };
    Refusal::Failed(format!("the supervision tree answered with {kind}, which is not what was asked")).into()
}

pub(super) fn router(backend: Backend) -> Router {
    let reads = Router::new()
        .route("/v1/status", get(tree::status))
        .route("/metrics", get(tree::metrics))
        .route("/v1/daemon", get(daemon::about))
        .route("/v1/kcp/kubeconfig", get(kcp::kubeconfig))
        .route("/v1/kcp/history", get(kcp::history))
        .route("/v1/clusters", get(clusters::list))
        .route("/v1/clusters/{cluster}/kubeconfig", get(clusters::kubeconfig))
        .route("/v1/clusters/{cluster}/credentials", get(clusters::credentials))
        .route("/v1/clusters/{cluster}/nodes", get(nodes::list))
        .route("/v1/clusters/{cluster}/nodes/{node}", put(nodes::add).delete(nodes::remove));
    let changes = Router::new()
        .route("/v1/clusters", post(clusters::create))
        .route("/v1/clusters/{cluster}", axum::routing::delete(clusters::delete))
        .route("/v1/clusters/{cluster}/adoption", get(clusters::plan_adoption))
        .route("/v1/clusters/{cluster}/adopt", post(clusters::adopt))
        .route("/v1/clusters/{cluster}/{action}", post(clusters::act))
        .route("/v1/chains/{chain}/retry", post(tree::retry))
        .route("/v1/services/{service}/{action}", post(services::act));
    let streams = Router::new()
        .route("/v1/logs/{chain}/{component}", get(streams::logs))
        .route("/v1/events", get(streams::events))
        .route("/v1/clusters/{cluster}/backup", post(backups::take));
    Router::new()
        .merge(within(deadline::READ, reads))
        .merge(within(deadline::CLUSTER, changes))
        .merge(within(
            deadline::HANDOVER,
            Router::new()
                .route("/v1/kcp/handover", post(kcp::handover))
                .route("/v1/kcp/upgrade", post(kcp::upgrade))
                .route("/v1/kcp/rotate-certs", post(kcp::rotate)),
        ))
        .merge(within(
            deadline::RESTORE,
            Router::new().route("/v1/clusters/{cluster}/restore", post(backups::restore)),
        ))
        .merge(within(
            deadline::ROTATION,
            Router::new().route("/v1/clusters/{cluster}/credentials/rotate", post(clusters::rotate)),
        ))
        .merge(within(deadline::PLAN, Router::new().route("/v1/kcp/handover/plan", post(kcp::plan))))
        .merge(within(deadline::UPGRADE, Router::new().route("/v1/daemon/upgrade", post(daemon::upgrade))))
        .merge(within(deadline::DOWN, Router::new().route("/v1/down", post(tree::down))))
        .merge(streams)
        .fallback(no_such_route)
        .method_not_allowed_fallback(no_such_method)
        .layer(DefaultBodyLimit::max(LARGEST_BODY))
        .with_state(Arc::new(backend))
}

fn within(deadline: Duration, routes: Router<Shared>) -> Router<Shared> {
    routes.route_layer(from_fn(move |request: Request, next: Next| async move {
        tokio::time::timeout(deadline, next.run(request)).await.unwrap_or_else(|_| too_late(deadline))
    }))
}

/// The tree goes on with what it was asked: a start or stop is not taken back because nobody waits for it.
fn too_late(deadline: Duration) -> Response {
    let reason = format!(
        "no answer from the supervision tree within {} s; it goes on: see `berth status`",
        deadline.as_secs()
    );
    Problem::new(StatusCode::GATEWAY_TIMEOUT, Refusal::Failed(reason)).into_response()
}

async fn no_such_route(request: Request) -> Problem {
    Refusal::NotFound(format!(
        "no route {}: is the berth command newer than the daemon?",
        request.uri().path()
    ))
    .into()
}

async fn no_such_method(request: Request) -> Problem {
    let reason = format!("{} is not a method of {}", request.method(), request.uri().path());
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, Refusal::BadRequest(reason))
}
