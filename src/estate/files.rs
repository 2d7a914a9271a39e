//! The control API's view of a cluster's files.

use super::HostEstate;
use crate::ccm::snapshot;
use crate::control::ClusterFiles;
use async_trait::async_trait;
use berth_actors::message::Refusal;
use berth_actors::root::STORE;
use std::io;
use std::path::PathBuf;

impl HostEstate {
    fn nodes_file(&self, cluster: &str) -> Result<PathBuf, Refusal> {
        self.tenant_of(cluster).map(|tenant| tenant.seat().data.join(snapshot::FILE)).map_err(Refusal::NotFound)
    }
}

#[async_trait]
impl ClusterFiles for HostEstate {
    async fn kubeconfig(&self, cluster: &str) -> Result<String, Refusal> {
        let path = self.tenant_of(cluster).map_err(Refusal::NotFound)?.kubeconfig();
        tokio::fs::read_to_string(&path).await.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Refusal::Conflict(format!("{cluster} has no kubeconfig yet: its kube-apiserver was never started"))
            }
            _ => Refusal::Failed(format!("read {}: {error}", path.display())),
        })
    }

    async fn nodes(&self, cluster: &str) -> Result<Vec<String>, Refusal> {
        let path = self.nodes_file(cluster)?;
        self.off_thread(move |_| snapshot::list(&path)).await.map_err(Refusal::Failed)
    }

    async fn add_node(&self, cluster: &str, node: &str) -> Result<(), Refusal> {
        let (path, node, owner) = (self.nodes_file(cluster)?, node.to_owned(), self.0.accounts.owner);
        self.off_thread(move |_| snapshot::add(&path, &node, owner)).await.map_err(Refusal::Failed)?;
        Ok(())
    }

    async fn remove_node(&self, cluster: &str, node: &str) -> Result<(), Refusal> {
        let (path, name, owner) = (self.nodes_file(cluster)?, node.to_owned(), self.0.accounts.owner);
        let removed =
            self.off_thread(move |_| snapshot::remove(&path, &name, owner)).await.map_err(Refusal::Failed)?;
        if removed {
            Ok(())
        } else {
            Err(Refusal::NotFound(format!("{cluster} has no node {node}; berth node list {cluster} shows those it has")))
        }
    }

    async fn log_path(&self, chain: &str, component: &str) -> Result<PathBuf, Refusal> {
        let logs = if [STORE, "slot-a", "slot-b"].contains(&chain) {
            self.kcp_seat(chain).map_err(Refusal::Failed)?.logs
        } else {
            self.tenant_of(chain).map_err(Refusal::NotFound)?.seat().logs.clone()
        };
        Ok(logs.join(format!("{component}.log")))
    }
}
