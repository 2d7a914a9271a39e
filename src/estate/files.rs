//! The control API's view of a cluster's files.

use super::HostEstate;
use super::backups::Held;
use crate::backup::staging::Staged;
use crate::backup::take;
use crate::backup::upload::Pieces;
use crate::ccm::{NodeName, Snapshot, snapshot_file};
use crate::control::ClusterFiles;
use crate::control::api::{CredentialOrder, Credentials, NewKcp, Rotated};
use crate::files;
use crate::kcp::upgrade::{self, UpgradeError, Wanted};
use crate::kcp::{KcpClient, upkeep};
use crate::names::{self, BadName};
use crate::tenant::Tenant;
use async_trait::async_trait;
use berth_actors::handover::Wish;
use berth_actors::message::{Command, Refusal};
use berth_actors::spec::User;
use berth_actors::status::{Holding, TreeStatus, Upkeep};
use std::collections::BTreeMap;
use std::path::PathBuf;

impl HostEstate {
    /// And whose it is.
    fn nodes_file(&self, cluster: &str) -> Result<(PathBuf, Option<User>), Refusal> {
        let file = |tenant: Tenant| (snapshot_file(&tenant.seat().data), tenant.seat().owner);
        self.tenant_of(cluster).map(file).map_err(Refusal::NotFound)
    }
}

fn node_name(node: &str) -> Result<NodeName, Refusal> {
    node.parse().map_err(|error: BadName| Refusal::BadRequest(error.to_string()))
}

#[async_trait]
impl ClusterFiles for HostEstate {
    async fn kubeconfig(&self, cluster: &str) -> Result<String, Refusal> {
        let path = self.tenant_of(cluster).map_err(Refusal::NotFound)?.kubeconfig();
        let read = self.off_thread(move |_| files::read_optional(&path)).await.map_err(Refusal::Failed)?;
        let bytes = read.ok_or_else(|| {
            Refusal::Conflict(format!("{cluster} has no kubeconfig yet: its Kubernetes was never started"))
        })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn kcp_kubeconfig(&self) -> Result<String, Refusal> {
        let read = self.off_thread(|inner| files::read_optional(&inner.kcp.consumer_kubeconfig())).await;
        let bytes = read.map_err(Refusal::Failed)?.ok_or_else(|| {
            Refusal::Conflict(
                "kcp has no kubeconfig yet: no slot has ever become ready; see berth status".to_owned(),
            )
        })?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    async fn kcp_upgrade(&self, wanted: NewKcp) -> Result<Wish, Refusal> {
        let NewKcp { version, path, allow_downgrade } = wanted;
        let wanted = match (version, path) {
            (Some(version), None) => Wanted::Version(version),
            (None, Some(path)) => Wanted::File(path),
            _ => return Err(Refusal::BadRequest("name a version or a path: one of them".to_owned())),
        };
        let wish = upgrade::wish(&self.0.kcp, wanted, allow_downgrade).await;
        wish.map_err(|error| match error {
            UpgradeError::Unknown { .. } => Refusal::NotFound(error.to_string()),
            UpgradeError::Downgrade { .. } | UpgradeError::Store(_) => Refusal::Conflict(error.to_string()),
            _ => Refusal::BadRequest(error.to_string()),
        })
    }

    async fn prepare_rotation(&self) -> Result<bool, Refusal> {
        let client = KcpClient::new(self.0.kcp.clone());
        self.off_thread(move |_| client.prepare_rotation()).await.map_err(Refusal::Failed)
    }

    async fn upkeep(&self, status: &TreeStatus) -> Option<Upkeep> {
        let (config, status) = (self.0.kcp.clone(), status.clone());
        let looked =
            self.off_thread(move |_| Ok::<_, std::convert::Infallible>(upkeep::of(&config, &status))).await;
        let mut upkeep = looked.ok()?;
        upkeep.notices.extend(self.notices());
        Some(upkeep)
    }

    async fn credentials(&self, cluster: &str) -> Result<Credentials, Refusal> {
        self.shown(cluster).await
    }

    async fn rotate_credentials(
        &self,
        cluster: &str,
        order: CredentialOrder,
        tree: actix::Recipient<Command>,
    ) -> Result<Rotated, Refusal> {
        let (estate, cluster) = (self.clone(), cluster.to_owned());
        // It goes on when nobody waits for it any more: half of it helps nobody.
        let rotated = tokio::spawn(async move { estate.rotate(&cluster, order, tree).await });
        rotated.await.unwrap_or_else(|error| Err(Refusal::Failed(error.to_string())))
    }

    fn holdings(&self) -> (BTreeMap<String, Holding>, Vec<String>) {
        self.0.holdings()
    }

    async fn nodes(&self, cluster: &str) -> Result<Vec<String>, Refusal> {
        let (path, _) = self.nodes_file(cluster)?;
        let snapshot = self.off_thread(move |_| Snapshot::read(&path)).await.map_err(Refusal::Failed)?;
        Ok(snapshot.instances().map(|instance| instance.name.as_str().to_owned()).collect())
    }

    async fn add_node(&self, cluster: &str, node: &str) -> Result<(), Refusal> {
        let (path, owner) = self.nodes_file(cluster)?;
        let name = node_name(node)?;
        self.off_thread(move |_| Snapshot::add(&path, &name, owner)).await.map_err(Refusal::Failed)?;
        Ok(())
    }

    async fn remove_node(&self, cluster: &str, node: &str) -> Result<(), Refusal> {
        let (path, owner) = self.nodes_file(cluster)?;
        let name = node_name(node)?;
        let removed =
            self.off_thread(move |_| Snapshot::remove(&path, &name, owner)).await.map_err(Refusal::Failed)?;
        if removed {
            Ok(())
        } else {
            Err(Refusal::NotFound(format!(
                "{cluster} has no node {node}; berth node list {cluster} shows those it has"
            )))
        }
    }

    async fn back_up(&self, cluster: &str, tree: actix::Recipient<Command>) -> Result<take::Stream, Refusal> {
        let tenant = self.tenant_of(cluster).map_err(Refusal::NotFound)?;
        let turns = self.0.turns.clone();
        // A task of its own: a caller that leaves must leave no mark on the tree. The stream nobody reads ends the backup.
        let begun = tokio::spawn(async move {
            let held = Held::begin(&turns, tenant.name(), tree).await?;
            Ok(take::begin(tenant, held))
        });
        begun.await.unwrap_or_else(|error| Err(Refusal::Failed(error.to_string())))
    }

    async fn stage_backup(&self, cluster: &str, pieces: Pieces) -> Result<Staged, Refusal> {
        self.staged(cluster, pieces).await
    }

    async fn log_path(&self, chain: &str, component: &str) -> Result<PathBuf, Refusal> {
        let logs = if names::is_kcp_chain(chain) {
            self.kcp_seat(chain).map_err(Refusal::Failed)?.logs
        } else {
            self.tenant_of(chain).map_err(Refusal::NotFound)?.seat().logs.clone()
        };
        Ok(logs.join(format!("{component}.log")))
    }
}
