//! The control API under any bytes, on both sides: what a client may send, and what a client may be answered.

use super::daemon::DaemonDesk;
use super::events::EventHub;
use super::files::ClusterFiles;
use super::routes::{Backend, router};
use crate::cli::terminal::Style;
use crate::cli::tree;
use crate::control::api::StampedEvent;
use crate::fuzzing::{assert_one_line, text};
use crate::names;
use actix::{Actor, Context, Handler};
use async_trait::async_trait;
use berth_actors::message::{Command, Refusal, Reply};
use berth_actors::status::TreeStatus;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

thread_local! {
    /// Its clock stands still but for timers, so a request that would be waited for costs nothing.
    static RUNTIME: Option<Runtime> = Builder::new_current_thread().enable_all().start_paused(true).build().ok();
}

/// One connection that brings these bytes and then ends. Each answer is HTTP, each refusal a [`Refusal`], and no name
/// reaches the tree or the files unchecked.
pub fn control_requests(bytes: &[u8]) {
    RUNTIME.with(|runtime| {
        if let Some(runtime) = runtime {
            LocalSet::new().block_on(runtime, converse(bytes));
        }
    });
}

async fn converse(bytes: &[u8]) {
    let answers = answers(bytes).await;
    assert!(answers.is_empty() || answers.starts_with(b"HTTP/1."), "{}", text(&answers));
    let body = answers.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |end| end + 4);
    let is_only = !answers[body..].windows(7).any(|seven| seven == b"HTTP/1.");
    if is_only && answers.starts_with(b"HTTP/1.1 400") && answers.ends_with(b"}") {
        let refusal = serde_json::from_slice::<Refusal>(&answers[body..]);
        assert!(refusal.is_ok(), "{}", text(&answers));
        assert_one_line(&refusal.map(|refusal| refusal.to_string()).unwrap_or_default());
    }
}

async fn answers(bytes: &[u8]) -> Vec<u8> {
    let ending = CancellationToken::new();
    let service = TowerToHyperService::new(router(Backend {
        daemon: DaemonDesk::open().0,
        tree: Tree.start().recipient(),
        files: Arc::new(Files),
        events: EventHub::new(),
        ending: ending.clone(),
    }));
    let (client, server) = tokio::io::duplex(1 << 20);
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .half_close(true)
        .serve_connection(TokioIo::new(server), service);
    // A stream that follows ends with the server.
    tokio::task::spawn_local(async move {
        tokio::time::sleep(Duration::from_secs(1)).await;
        ending.cancel();
    });
    let both = async { tokio::join!(served, exchange(client, bytes)).1 };
    let answers = tokio::time::timeout(Duration::from_mins(10), both).await;
    assert!(answers.is_ok(), "the connection goes on after its end");
    answers.unwrap_or_default()
}

async fn exchange(mut client: DuplexStream, bytes: &[u8]) -> Vec<u8> {
    let mut answers = Vec::new();
    if client.write_all(bytes).await.is_ok() && client.shutdown().await.is_ok() {
        let _ = client.read_to_end(&mut answers).await;
    }
    answers
}

struct Tree;

impl Actor for Tree {
    type Context = Context<Self>;
}

impl Handler<Command> for Tree {
    type Result = Result<Reply, Refusal>;

    fn handle(&mut self, command: Command, _: &mut Self::Context) -> Self::Result {
        match command {
            Command::Status => Ok(Reply::Status(Box::default())),
            Command::CreateTenant { name }
            | Command::DeleteTenant { name }
            | Command::StartTenant { name }
            | Command::StopTenant { name }
            | Command::RestartTenant { name }
            | Command::RestartStep { name, .. }
            | Command::RetryTenant { name }
            | Command::PauseTenant { name, .. }
            | Command::ResumeTenant { name }
            | Command::BeginBackup { name }
            | Command::EndBackup { name }
            | Command::RestoreTenant { name, .. }
            | Command::PlanAdoption { name }
            | Command::AdoptData { name, .. } => {
                assert_eq!(names::chain(&name), Ok(name));
                Ok(Reply::Done)
            }
            _ => Ok(Reply::Done),
        }
    }
}

struct Files;

fn checked(cluster: &str) {
    assert_eq!(names::cluster(cluster).as_deref(), Ok(cluster));
}

#[async_trait]
impl ClusterFiles for Files {
    async fn kubeconfig(&self, cluster: &str) -> Result<String, Refusal> {
        checked(cluster);
        Ok(String::new())
    }
    async fn kcp_kubeconfig(&self) -> Result<String, Refusal> {
        Ok(String::new())
    }
    async fn nodes(&self, cluster: &str) -> Result<Vec<String>, Refusal> {
        checked(cluster);
        Ok(Vec::new())
    }
    async fn add_node(&self, cluster: &str, node: &str) -> Result<(), Refusal> {
        checked(cluster);
        assert_eq!(names::node(node).as_deref(), Ok(node));
        Ok(())
    }
    async fn remove_node(&self, cluster: &str, node: &str) -> Result<(), Refusal> {
        self.add_node(cluster, node).await
    }
    async fn log_path(&self, chain: &str, component: &str) -> Result<PathBuf, Refusal> {
        assert_eq!(names::chain(chain).as_deref(), Ok(chain));
        assert_eq!(names::component(component).as_deref(), Ok(component));
        Ok(PathBuf::from("/dev/null/no.log"))
    }
}

/// A status is shown without harming the terminal; events and refusals are taken or not.
pub fn control_answers(bytes: &[u8]) {
    if let Ok(status) = serde_json::from_slice::<TreeStatus>(bytes) {
        let shown = tree::render(&status, Style::PLAIN);
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
        let written = serde_json::to_vec(&status).unwrap_or_default();
        assert_eq!(serde_json::from_slice::<TreeStatus>(&written).ok(), Some(status));
    }
    if let Ok(event) = serde_json::from_slice::<StampedEvent>(bytes) {
        let written = serde_json::to_vec(&event).unwrap_or_default();
        assert_eq!(serde_json::from_slice::<StampedEvent>(&written).ok(), Some(event));
    }
    let _ = serde_json::from_slice::<Refusal>(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status line of the only answer.
    fn status(request: &str) -> String {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let answers = LocalSet::new().block_on(&runtime, answers(request.as_bytes()));
        text(&answers).lines().next().unwrap_or_default().to_owned()
    }

    #[test]
    fn the_target_reaches_the_routes() {
        let body = |body: &str| format!("content-length: {}\r\n\r\n{body}", body.len());
        let post = |name: &str| {
            format!("POST /v1/clusters HTTP/1.1\r\nhost: x\r\n{}", body(&format!("{{\"name\":\"{name}\"}}")))
        };
        assert_eq!(status(&post("demo")), "HTTP/1.1 200 OK");
        assert_eq!(status(&post("../x")), "HTTP/1.1 400 Bad Request");
        assert_eq!(status("GET /v1/events?follow=true HTTP/1.1\r\nhost: x\r\n\r\n"), "HTTP/1.1 200 OK");
    }
}
