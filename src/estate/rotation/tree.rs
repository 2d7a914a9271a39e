//! What a rotation asks of the tree: where a component listens, and to restart one.

use berth_actors::message::{Command, Refusal, Reply};
use berth_actors::status::{ChainState, ChainStatus};
use std::net::SocketAddr;

/// The tree, as far as one tenant is concerned.
pub(super) struct Tree {
    cluster: String,
    root: actix::Recipient<Command>,
}

impl Tree {
    pub(super) fn new(cluster: &str, root: actix::Recipient<Command>) -> Self {
        Self { cluster: cluster.to_owned(), root }
    }

    async fn ask(&self, command: Command) -> Result<Reply, Refusal> {
        self.root.send(command).await.map_err(|_| Refusal::Failed("the daemon is ending".to_owned()))?
    }

    async fn chain(&self) -> Result<ChainStatus, Refusal> {
        let Reply::Status(status) = self.ask(Command::Status).await? else {
            return Err(Refusal::Failed("the supervision tree answered with something else".to_owned()));
        };
        let chain = status.tenants.into_iter().find(|chain| chain.name == self.cluster);
        chain.ok_or_else(|| Refusal::NotFound(format!("there is no cluster {}", self.cluster)))
    }

    pub(super) async fn is_ready(&self) -> Result<bool, Refusal> {
        Ok(self.chain().await?.state == ChainState::Ready)
    }

    pub(super) async fn address_of(&self, component: &str) -> Result<Option<SocketAddr>, Refusal> {
        let chain = self.chain().await?;
        Ok(chain.children.iter().find(|child| child.name == component).and_then(|child| child.address))
    }

    /// Returns once the whole cluster is ready again.
    pub(super) async fn restart(&self, component: &str) -> Result<(), Refusal> {
        let command = Command::RestartStep { name: self.cluster.clone(), component: component.to_owned() };
        self.ask(command).await.map(drop)
    }
}
