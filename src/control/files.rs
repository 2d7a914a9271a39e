//! What the control API needs from a tenant's files. The daemon implements it over its layout; tests fake it.

use async_trait::async_trait;
use berth_actors::message::Refusal;
use std::path::PathBuf;

/// Files of clusters and chains. Names were checked by [`crate::names`] before any method sees them; blocking work is
/// the implementation's to move off the arbiter. Whether a cluster exists is its answer to give (`NotFound`).
#[async_trait]
pub trait ClusterFiles: Send + Sync + 'static {
    /// The admin kubeconfig of a cluster, as YAML.
    async fn kubeconfig(&self, cluster: &str) -> Result<String, Refusal>;

    /// The kubeconfig of kcp's consumers, as YAML: shard-admin through the front, and nobody else (K5).
    async fn kcp_kubeconfig(&self) -> Result<String, Refusal>;

    /// Names in the node snapshot, in its order.
    async fn nodes(&self, cluster: &str) -> Result<Vec<String>, Refusal>;

    /// Adds a node to the snapshot. One that is there already is fine.
    async fn add_node(&self, cluster: &str, node: &str) -> Result<(), Refusal>;

    /// Removes a node from the snapshot; `NotFound` when it is not in it.
    async fn remove_node(&self, cluster: &str, node: &str) -> Result<(), Refusal>;

    /// Where a component writes its output. The file need not exist yet.
    async fn log_path(&self, chain: &str, component: &str) -> Result<PathBuf, Refusal>;
}
