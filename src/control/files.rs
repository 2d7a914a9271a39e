//! What the control API needs from a tenant's files. The daemon implements it over its layout; tests fake it.

use super::api::{CredentialOrder, Credentials, NewKcp, Rotated};
use crate::backup::staging::Staged;
use crate::backup::take;
use crate::backup::upload::Pieces;
use async_trait::async_trait;
use berth_actors::handover::Wish;
use berth_actors::message::{Command, Refusal};
use berth_actors::status::{Holding, TreeStatus, Upkeep};
use futures::StreamExt;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Files of clusters and chains. Names were checked by [`crate::names`] before any method sees them; blocking work is
/// the implementation's to move off the arbiter. Whether a cluster exists is its answer to give (`NotFound`).
#[async_trait]
pub trait ClusterFiles: Send + Sync + 'static {
    /// The admin kubeconfig of a cluster, as YAML.
    async fn kubeconfig(&self, cluster: &str) -> Result<String, Refusal>;

    /// The kubeconfig of kcp's consumers, as YAML: shard-admin through the front, and nobody else (K5).
    async fn kcp_kubeconfig(&self) -> Result<String, Refusal>;

    /// The wish of a handover to another kcp, checked as far as it can be before anything is done.
    async fn kcp_upgrade(&self, _wanted: NewKcp) -> Result<Wish, Refusal> {
        Err(Refusal::NotFound("this daemon runs no kcp".to_owned()))
    }

    /// Makes the authority that kcp's next certificate is signed by, and has clients' kubeconfig trust it; false: it was made
    /// just now, and no client can know of it.
    async fn prepare_rotation(&self) -> Result<bool, Refusal> {
        Err(Refusal::NotFound("this daemon runs no kcp".to_owned()))
    }

    /// Every certificate and key of a cluster.
    async fn credentials(&self, cluster: &str) -> Result<Credentials, Refusal> {
        Err(Refusal::NotFound(format!("there is no cluster {cluster}")))
    }

    /// New ones, on disk and in whatever of `tree` uses them. Goes on when the caller leaves.
    async fn rotate_credentials(
        &self,
        cluster: &str,
        _order: CredentialOrder,
        _tree: actix::Recipient<Command>,
    ) -> Result<Rotated, Refusal> {
        Err(Refusal::NotFound(format!("there is no cluster {cluster}")))
    }

    /// What an operator has to see to, given what runs.
    async fn upkeep(&self, _status: &TreeStatus) -> Option<Upkeep> {
        None
    }

    /// What the host keeps for each cluster, and what is remarkable about it. Asked for each status: reads nothing.
    fn holdings(&self) -> (BTreeMap<String, Holding>, Vec<String>) {
        (BTreeMap::new(), Vec::new())
    }

    /// Names in the node snapshot, in its order.
    async fn nodes(&self, cluster: &str) -> Result<Vec<String>, Refusal>;

    /// Adds a node to the snapshot. One that is there already is fine.
    async fn add_node(&self, cluster: &str, node: &str) -> Result<(), Refusal>;

    /// Removes a node from the snapshot; `NotFound` when it is not in it.
    async fn remove_node(&self, cluster: &str, node: &str) -> Result<(), Refusal>;

    /// The frames of a backup. `tree` knows of it from before its first byte to its end, also where nobody reads it to that.
    async fn back_up(
        &self,
        cluster: &str,
        _tree: actix::Recipient<Command>,
    ) -> Result<take::Stream, Refusal> {
        Err(Refusal::NotFound(format!("{cluster} cannot be backed up here")))
    }

    /// Unpacks and verifies a backup for a cluster that does not exist yet. All of `pieces` are read.
    async fn stage_backup(&self, cluster: &str, mut pieces: Pieces) -> Result<Staged, Refusal> {
        while pieces.next().await.is_some() {}
        Err(Refusal::NotFound(format!("{cluster} cannot be restored here")))
    }

    /// Where a component writes its output. The file need not exist yet.
    async fn log_path(&self, chain: &str, component: &str) -> Result<PathBuf, Refusal>;
}
