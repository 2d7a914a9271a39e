//! The control API's view of the services' files: their logs. There are no clusters here.

use crate::control::ClusterFiles;
use async_trait::async_trait;
use berth_actors::message::Refusal;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct ServiceFiles {
    pub(super) dir: Arc<Path>,
    /// Log by service, from the directory.
    pub(super) logs: HashMap<String, PathBuf>,
}

fn no_cluster<T>(cluster: &str) -> Result<T, Refusal> {
    Err(Refusal::NotFound(format!("there is no cluster {cluster}: this daemon runs plain services")))
}

#[async_trait]
impl ClusterFiles for ServiceFiles {
    async fn kubeconfig(&self, cluster: &str) -> Result<String, Refusal> {
        no_cluster(cluster)
    }

    async fn kcp_kubeconfig(&self) -> Result<String, Refusal> {
        Err(Refusal::NotFound("there is no kcp: this daemon runs plain services".to_owned()))
    }

    async fn nodes(&self, cluster: &str) -> Result<Vec<String>, Refusal> {
        no_cluster(cluster)
    }

    async fn add_node(&self, cluster: &str, _: &str) -> Result<(), Refusal> {
        no_cluster(cluster)
    }

    async fn remove_node(&self, cluster: &str, _: &str) -> Result<(), Refusal> {
        no_cluster(cluster)
    }

    async fn log_path(&self, chain: &str, _: &str) -> Result<PathBuf, Refusal> {
        let missing = || Refusal::NotFound(format!("there is no service {chain}"));
        self.logs.get(chain).map(|log| self.dir.join(log)).ok_or_else(missing)
    }
}
