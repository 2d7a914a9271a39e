//! What a rotation asks of the tree: where a component listens, and to restart one.

use crate::control::deadline;
use berth_actors::message::{Command, Refusal, Reply};
use berth_actors::status::{ChainState, ChainStatus};
use std::net::SocketAddr;
use std::time::Duration;

/// The tree, as far as one tenant is concerned.
pub(super) struct Tree {
    cluster: String,
    root: actix::Recipient<Command>,
}

impl Tree {
    pub(super) fn new(cluster: &str, root: actix::Recipient<Command>) -> Self {
        Self { cluster: cluster.to_owned(), root }
    }

    async fn ask(&self, command: Command, within: Duration) -> Result<Reply, Refusal> {
        let late = |_| {
            let text =
                format!("no answer from the supervision tree within {} s; it goes on", within.as_secs());
            Refusal::Failed(format!("{}: {text}: see berth cluster status {}", self.cluster, self.cluster))
        };
        let answer = tokio::time::timeout(within, self.root.send(command)).await.map_err(late)?;
        answer.map_err(|_| Refusal::Failed("the daemon is ending".to_owned()))?
    }

    async fn chain(&self) -> Result<ChainStatus, Refusal> {
        let Reply::Status(status) = self.ask(Command::Status, deadline::READ).await? else {
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

    /// Returns once the whole cluster is ready again: within the time of a start, or it is an error.
    pub(super) async fn restart(&self, component: &str) -> Result<(), Refusal> {
        let command = Command::RestartStep { name: self.cluster.clone(), component: component.to_owned() };
        self.ask(command, deadline::CLUSTER).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix::{Actor, Context, Handler, ResponseFuture};

    /// Takes every question and answers none.
    struct Silent;

    impl Actor for Silent {
        type Context = Context<Self>;
    }

    impl Handler<Command> for Silent {
        type Result = ResponseFuture<Result<Reply, Refusal>>;

        fn handle(&mut self, _: Command, _: &mut Self::Context) -> Self::Result {
            Box::pin(std::future::pending())
        }
    }

    #[actix::test]
    async fn a_restart_that_never_ends_is_not_waited_for_for_ever() {
        tokio::time::pause();
        let tree = Tree::new("demo", Silent.start().recipient());
        let refused = tree.restart("openbao").await.unwrap_err().to_string();
        assert!(refused.contains("demo") && refused.contains("within 600 s"), "{refused}");
    }
}
