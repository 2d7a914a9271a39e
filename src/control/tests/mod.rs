//! Server and client over a real socket, with a scripted tree behind them.

mod clusters;
mod connections;
mod requests;
mod streams;

use super::api::{Action, EventQuery, LogQuery};
use super::daemon::DaemonDesk;
use super::files::ClusterFiles;
use super::{Client, ClientError, ControlServer, EventHub};
use actix::{Actor, Context, Handler};
use async_trait::async_trait;
use berth_actors::message::{Command, Refusal, Reply, TreeEvent};
use berth_actors::status::TreeStatus;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

type Answer = fn(&Command) -> Result<Reply, Refusal>;

/// Answers as it is told and remembers what it was asked.
struct FakeTree {
    answer: Answer,
    asked: Arc<Mutex<Vec<Command>>>,
}

impl Actor for FakeTree {
    type Context = Context<Self>;
}

impl Handler<Command> for FakeTree {
    type Result = Result<Reply, Refusal>;
    fn handle(&mut self, command: Command, _: &mut Self::Context) -> Self::Result {
        let answer = (self.answer)(&command);
        self.asked.lock().unwrap().push(command);
        answer
    }
}

/// One cluster `demo` whose files lie in a directory of the test.
struct FakeFiles {
    dir: PathBuf,
    nodes: Mutex<Vec<String>>,
}

fn only_demo(cluster: &str) -> Result<(), Refusal> {
    if cluster == "demo" {
        return Ok(());
    }
    Err(Refusal::NotFound(format!("no cluster {cluster}: see `berth cluster list`")))
}

#[async_trait]
impl ClusterFiles for FakeFiles {
    async fn kubeconfig(&self, cluster: &str) -> Result<String, Refusal> {
        only_demo(cluster).map(|()| "kind: Config\n".to_owned())
    }
    async fn kcp_kubeconfig(&self) -> Result<String, Refusal> {
        Ok("kind: Config\n".to_owned())
    }
    async fn nodes(&self, cluster: &str) -> Result<Vec<String>, Refusal> {
        only_demo(cluster).map(|()| self.nodes.lock().unwrap().clone())
    }
    async fn add_node(&self, cluster: &str, node: &str) -> Result<(), Refusal> {
        only_demo(cluster)?;
        self.nodes.lock().unwrap().push(node.to_owned());
        Ok(())
    }
    async fn remove_node(&self, cluster: &str, node: &str) -> Result<(), Refusal> {
        only_demo(cluster)?;
        let mut nodes = self.nodes.lock().unwrap();
        let index = nodes.iter().position(|n| n == node);
        let index = index.ok_or_else(|| Refusal::NotFound(format!("{cluster} has no node {node}")))?;
        nodes.remove(index);
        Ok(())
    }
    async fn log_path(&self, chain: &str, component: &str) -> Result<PathBuf, Refusal> {
        if !crate::names::is_kcp_chain(chain) {
            only_demo(chain)?;
        }
        Ok(self.dir.join(format!("{chain}-{component}.log")))
    }
}

/// A served socket in a directory of its own.
pub(crate) struct Harness {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) client: Client,
    events: EventHub,
    asked: Arc<Mutex<Vec<Command>>>,
    shutdown: CancellationToken,
    serving: JoinHandle<()>,
}

impl Harness {
    pub(crate) fn start(answer: Answer) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control.sock");
        let asked = Arc::default();
        let tree = FakeTree { answer, asked: Arc::clone(&asked) }.start();
        let files = FakeFiles { dir: dir.path().to_owned(), nodes: Mutex::default() };
        let events = EventHub::new();
        let server = ControlServer::bind(
            &socket,
            DaemonDesk::open().0,
            tree.recipient(),
            Arc::new(files),
            events.clone(),
        )
        .unwrap();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(server.serve(shutdown.clone()));
        Self { dir, client: Client::new(socket), events, asked, shutdown, serving }
    }

    /// Every command succeeds.
    fn obedient() -> Self {
        Self::start(|command| match command {
            Command::Status => Ok(Reply::Status(Box::default())),
            _ => Ok(Reply::Done),
        })
    }

    /// Ends the server and waits for its end.
    pub(crate) async fn shutdown(&self) {
        self.shutdown.cancel();
        while self.client.socket().exists() {
            tokio::task::yield_now().await;
        }
    }

    fn asked(&self) -> Vec<Command> {
        std::mem::take(&mut self.asked.lock().unwrap())
    }
}

fn refusal<T: std::fmt::Debug>(result: Result<T, ClientError>) -> Refusal {
    match result {
        Err(ClientError::Refused(refusal)) => refusal,
        other => panic!("no refusal: {other:?}"),
    }
}

fn event(what: &str) -> TreeEvent {
    TreeEvent { subject: "demo/kine".to_owned(), what: what.to_owned() }
}
