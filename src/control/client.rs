//! The command line's end of the control socket: one connection per request, and errors an operator can act on.
//!
//! Used by `cli` only. It never reads the daemon's files; what it knows, it was told over the socket.

use super::api::{
    About, Action, CredentialOrder, Credentials, EventQuery, LogQuery, NewBinary, NewCluster, NewHandover,
    NewKcp, Rotated, Rotation,
};
use super::{deadline, peer};
use axum::body::Bytes;
use berth_actors::data_adoption::{AdoptionPlan, Consent};
use berth_actors::handover::Wish;
use berth_actors::message::Refusal;
use berth_actors::status::{ChainStatus, HandoverHistory, HandoverPlan, HandoverStatus, TreeStatus};
use futures::{Stream, TryStreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, BodyStream, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixStream;

/// Why there is no answer, or no good one.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "no daemon answers on {socket}: start one with `berth up`, or name its state directory with --state"
    )]
    NoDaemon { socket: PathBuf },
    #[error(
        "no permission for the control socket {socket}: run this as the user the daemon runs as, or as root"
    )]
    Permission { socket: PathBuf },
    #[error("{socket} is served by another user (uid {uid}), which is not your daemon: nothing was sent")]
    Stranger { socket: PathBuf, uid: u32 },
    #[error("{0}")]
    Refused(Refusal),
    #[error("the daemon on {socket} gave no answer within {} s", .deadline.as_secs())]
    Deadline { socket: PathBuf, deadline: Duration },
    /// It ended, or cut the connection, before its answer was complete.
    #[error("the daemon on {socket} ended the connection before its answer: {reason}")]
    Broken { socket: PathBuf, reason: String },
    #[error(
        "the daemon on {socket} gave an answer this berth does not know ({reason}): are they of one version?"
    )]
    Foreign { socket: PathBuf, reason: String },
}

/// Names a control socket. Connects anew for each request.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub async fn status(&self) -> Result<TreeStatus, ClientError> {
        self.json(Method::GET, "/v1/status", deadline::READ).await
    }

    /// Prometheus text.
    pub async fn metrics(&self) -> Result<Bytes, ClientError> {
        self.whole(Method::GET, "/metrics", Vec::new(), deadline::READ).await
    }

    pub async fn about(&self) -> Result<About, ClientError> {
        self.json(Method::GET, "/v1/daemon", deadline::READ).await
    }

    /// Has the daemon go and become `program`. Answered before it goes.
    pub async fn upgrade(&self, program: &Path) -> Result<(), ClientError> {
        let body = serde_json::to_vec(&NewBinary { program: program.to_owned() }).unwrap_or_default();
        self.whole(Method::POST, "/v1/daemon/upgrade", body, deadline::UPGRADE).await.map(drop)
    }

    /// Stops everything in order. A daemon that ends with its tree before the answer has arrived did what was asked.
    pub async fn down(&self) -> Result<(), ClientError> {
        match self.done(Method::POST, "/v1/down", deadline::DOWN).await {
            Err(ClientError::Broken { .. }) if UnixStream::connect(&self.socket).await.is_err() => Ok(()),
            other => other,
        }
    }

    /// Moves kcp to the other slot. A handover that was rolled back is an `Ok` that says so.
    pub async fn handover(&self, wish: Wish) -> Result<HandoverStatus, ClientError> {
        self.of_json(Method::POST, "/v1/kcp/handover", &NewHandover { wish }, deadline::HANDOVER).await
    }

    /// What a handover would do, and what speaks against it.
    pub async fn plan_handover(&self, wish: Wish) -> Result<HandoverPlan, ClientError> {
        self.of_json(Method::POST, "/v1/kcp/handover/plan", &NewHandover { wish }, deadline::PLAN).await
    }

    pub async fn handovers(&self) -> Result<HandoverHistory, ClientError> {
        self.json(Method::GET, "/v1/kcp/history", deadline::READ).await
    }

    /// Moves kcp to the other slot, with another program in it.
    pub async fn upgrade_kcp(&self, wanted: &NewKcp) -> Result<HandoverStatus, ClientError> {
        self.of_json(Method::POST, "/v1/kcp/upgrade", wanted, deadline::HANDOVER).await
    }

    /// Moves kcp to the other slot, with a new certificate.
    pub async fn rotate_certificates(&self, now: bool) -> Result<HandoverStatus, ClientError> {
        self.of_json(Method::POST, "/v1/kcp/rotate-certs", &Rotation { now }, deadline::HANDOVER).await
    }

    pub async fn clusters(&self) -> Result<Vec<ChainStatus>, ClientError> {
        self.json(Method::GET, "/v1/clusters", deadline::READ).await
    }

    pub async fn create_cluster(&self, name: &str) -> Result<(), ClientError> {
        let body = serde_json::to_vec(&NewCluster { name: name.to_owned() }).unwrap_or_default();
        self.whole(Method::POST, "/v1/clusters", body, deadline::CLUSTER).await.map(drop)
    }

    pub async fn delete_cluster(&self, name: &str) -> Result<(), ClientError> {
        self.done(Method::DELETE, &format!("/v1/clusters/{name}"), deadline::CLUSTER).await
    }

    pub async fn act(&self, name: &str, action: Action) -> Result<(), ClientError> {
        self.done(Method::POST, &format!("/v1/clusters/{name}/{}", action.as_str()), deadline::CLUSTER).await
    }

    /// What adopting the data of a refused cluster would change.
    pub async fn plan_adoption(&self, name: &str) -> Result<AdoptionPlan, ClientError> {
        self.json(Method::GET, &format!("/v1/clusters/{name}/adoption"), deadline::CLUSTER).await
    }

    /// Adopts them as planned and waits until the cluster is ready.
    pub async fn adopt(&self, name: &str, consent: &Consent) -> Result<(), ClientError> {
        let body = serde_json::to_vec(consent).unwrap_or_default();
        let path = format!("/v1/clusters/{name}/adopt");
        self.whole(Method::POST, &path, body, deadline::CLUSTER).await.map(drop)
    }

    /// A backup as frames (`backup::wire`), in chunks of any size. Begins once the daemon's own look at the cluster's credentials
    /// is over. Dropping it ends the backup.
    pub async fn back_up(
        &self,
        name: &str,
    ) -> Result<impl Stream<Item = Result<Bytes, ClientError>> + Send + use<>, ClientError> {
        self.stream(Method::POST, &format!("/v1/clusters/{name}/backup"), deadline::CLUSTER).await
    }

    /// Sends a backup to be restored as `name`, and waits until that cluster is ready.
    pub async fn restore(
        &self,
        name: &str,
        backup: impl Stream<Item = io::Result<Bytes>> + Send + 'static,
    ) -> Result<(), ClientError> {
        let limit = deadline::RESTORE + deadline::CLIENT_SLACK;
        let body = BodyExt::boxed_unsync(StreamBody::new(backup.map_ok(Frame::data)));
        let path = format!("/v1/clusters/{name}/restore");
        let exchange = async { self.read(self.send_body(Method::POST, &path, body).await?).await };
        tokio::time::timeout(limit, exchange).await.map_err(|_| self.late(limit))?.map(drop)
    }

    /// Every certificate and key of a cluster.
    pub async fn credentials(&self, name: &str) -> Result<Credentials, ClientError> {
        self.json(Method::GET, &format!("/v1/clusters/{name}/credentials"), deadline::READ).await
    }

    /// New ones. Says what was done.
    pub async fn rotate_credentials(
        &self,
        name: &str,
        order: &CredentialOrder,
    ) -> Result<Rotated, ClientError> {
        let path = format!("/v1/clusters/{name}/credentials/rotate");
        self.of_json(Method::POST, &path, order, deadline::ROTATION).await
    }

    /// Tries a chain again that gave up, was refused or is done; kcp's own as well.
    pub async fn retry(&self, chain: &str) -> Result<(), ClientError> {
        self.done(Method::POST, &format!("/v1/chains/{chain}/retry"), deadline::CLUSTER).await
    }

    /// Start, stop or retry one plain service.
    pub async fn act_on_service(&self, name: &str, action: Action) -> Result<(), ClientError> {
        self.done(Method::POST, &format!("/v1/services/{name}/{}", action.as_str()), deadline::CLUSTER).await
    }

    /// YAML; it holds credentials.
    pub async fn kubeconfig(&self, name: &str) -> Result<Bytes, ClientError> {
        self.whole(Method::GET, &format!("/v1/clusters/{name}/kubeconfig"), Vec::new(), deadline::READ).await
    }

    /// Of kcp's consumers. YAML; it holds credentials.
    pub async fn kcp_kubeconfig(&self) -> Result<Bytes, ClientError> {
        self.whole(Method::GET, "/v1/kcp/kubeconfig", Vec::new(), deadline::READ).await
    }

    pub async fn nodes(&self, cluster: &str) -> Result<Vec<String>, ClientError> {
        self.json(Method::GET, &format!("/v1/clusters/{cluster}/nodes"), deadline::READ).await
    }

    pub async fn add_node(&self, cluster: &str, node: &str) -> Result<(), ClientError> {
        self.done(Method::PUT, &format!("/v1/clusters/{cluster}/nodes/{node}"), deadline::READ).await
    }

    pub async fn remove_node(&self, cluster: &str, node: &str) -> Result<(), ClientError> {
        self.done(Method::DELETE, &format!("/v1/clusters/{cluster}/nodes/{node}"), deadline::READ).await
    }

    /// A component's log in chunks of any size; without `follow` it ends by itself.
    pub async fn logs(
        &self,
        chain: &str,
        component: &str,
        query: LogQuery,
    ) -> Result<impl Stream<Item = Result<Bytes, ClientError>> + Send + use<>, ClientError> {
        let LogQuery { lines, follow } = query;
        let path = format!("/v1/logs/{chain}/{component}?lines={lines}&follow={follow}");
        self.stream(Method::GET, &path, deadline::READ).await
    }

    /// Events as JSON lines (`StampedEvent`), in chunks of any size.
    pub async fn events(
        &self,
        query: EventQuery,
    ) -> Result<impl Stream<Item = Result<Bytes, ClientError>> + Send + use<>, ClientError> {
        self.stream(Method::GET, &format!("/v1/events?follow={}", query.follow), deadline::READ).await
    }

    async fn done(&self, method: Method, path: &str, limit: Duration) -> Result<(), ClientError> {
        self.whole(method, path, Vec::new(), limit).await.map(drop)
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        limit: Duration,
    ) -> Result<T, ClientError> {
        let body = self.whole(method, path, Vec::new(), limit).await?;
        serde_json::from_slice(&body).map_err(|e| self.foreign(e.to_string()))
    }

    async fn of_json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
        limit: Duration,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).unwrap_or_default();
        let answer = self.whole(method, path, body, limit).await?;
        serde_json::from_slice(&answer).map_err(|e| self.foreign(e.to_string()))
    }

    async fn whole(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<Bytes, ClientError> {
        let limit = limit + deadline::CLIENT_SLACK;
        let exchange = async { self.read(self.send(method, path, body).await?).await };
        tokio::time::timeout(limit, exchange).await.map_err(|_| self.late(limit))?
    }

    /// `opens_within`: until the answer begins; it may then go on for as long as it likes.
    async fn stream(
        &self,
        method: Method,
        path: &str,
        opens_within: Duration,
    ) -> Result<impl Stream<Item = Result<Bytes, ClientError>> + Send + use<>, ClientError> {
        let limit = opens_within + deadline::CLIENT_SLACK;
        let opening = self.send(method, path, Vec::new());
        let answer = tokio::time::timeout(limit, opening).await.map_err(|_| self.late(limit))??;
        let client = self.clone();
        Ok(futures::StreamExt::filter_map(BodyStream::new(answer.into_body()), move |frame| {
            let chunk = match frame {
                Ok(frame) => frame.into_data().ok().map(Ok),
                Err(error) => Some(Err(client.broken(&error))),
            };
            std::future::ready(chunk)
        }))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Vec<u8>,
    ) -> Result<Response<Incoming>, ClientError> {
        let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
        self.send_body(method, path, body.boxed_unsync()).await
    }

    /// Sends one request; an answer other than success is an error already.
    async fn send_body(
        &self,
        method: Method,
        path: &str,
        body: UnsyncBoxBody<Bytes, io::Error>,
    ) -> Result<Response<Incoming>, ClientError> {
        let stream = self.connect().await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|e| self.broken(&e))?;
        // Ends by itself once the answer was read or dropped.
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "berth")
            .body(body)
            .map_err(|e| self.foreign(e.to_string()))?;
        let answer = sender.send_request(request).await.map_err(|e| self.broken(&e))?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let body = self.read(answer).await?;
        Err(match serde_json::from_slice(&body) {
            Ok(refusal) => ClientError::Refused(refusal),
            Err(_) => self.foreign(status.to_string()),
        })
    }

    async fn connect(&self) -> Result<UnixStream, ClientError> {
        let stream = tokio::time::timeout(deadline::CONNECT, UnixStream::connect(&self.socket))
            .await
            .map_err(|_| self.late(deadline::CONNECT))?
            .map_err(|error| self.unreachable(&error))?;
        let peer = stream.peer_cred().map_err(|error| self.unreachable(&error))?;
        if !peer::may_answer(peer.uid(), rustix::process::geteuid().as_raw()) {
            return Err(ClientError::Stranger { socket: self.socket.clone(), uid: peer.uid() });
        }
        Ok(stream)
    }

    async fn read(&self, answer: Response<Incoming>) -> Result<Bytes, ClientError> {
        Ok(answer.into_body().collect().await.map_err(|e| self.broken(&e))?.to_bytes())
    }

    fn unreachable(&self, error: &io::Error) -> ClientError {
        let socket = self.socket.clone();
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NoDaemon { socket },
            io::ErrorKind::PermissionDenied => ClientError::Permission { socket },
            _ => ClientError::Broken { socket, reason: error.to_string() },
        }
    }

    fn late(&self, deadline: Duration) -> ClientError {
        ClientError::Deadline { socket: self.socket.clone(), deadline }
    }

    fn broken(&self, error: &hyper::Error) -> ClientError {
        ClientError::Broken { socket: self.socket.clone(), reason: error.to_string() }
    }

    fn foreign(&self, reason: String) -> ClientError {
        ClientError::Foreign { socket: self.socket.clone(), reason }
    }
}
