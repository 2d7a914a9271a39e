//! New credentials for a tenant that runs: made on disk, then taken up by whoever uses them.
//!
//! Nothing is remembered but the files. Each pass compares what they say with what the running components hold
//! ([`crate::tenant::asked`]) and does what is missing, so a daemon that died over a rotation leaves one that its successor
//! finishes: at its first look, or when it is asked again. One rotation a tenant at a time.

mod certificates;
mod sealing;
mod signer;
mod tree;
mod turn;
mod vault;

use super::HostEstate;
use crate::control::api::{CredentialOrder, Rotate, Rotated};
use crate::tenant::Tenant;
use crate::tenant::asked::ApiServer;
use crate::tenant::defaults::OLD_SIGNER;
use crate::tenant::pki::{Pki, PkiError, Which};
use berth_actors::host::Distribution;
use berth_actors::message::{Command, Refusal};
use std::sync::Arc;
use std::time::Duration;
use tree::Tree;
pub(super) use turn::{Turn, Turns};

/// A component that watches its files looks at them at least once a minute.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(150);
/// What an operator waits for the daemon's own look: one component that takes up a new certificate, and another a restart.
pub(super) const UPKEEP_ENDS_WITHIN: Duration = Duration::from_mins(5);
/// Between two questions whether it has: each is a request.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A tenant, the tree it runs in, and what was done to it.
struct Rotation {
    estate: HostEstate,
    tenant: Tenant,
    tree: Tree,
    turn: Arc<Turn>,
    done: Vec<String>,
}

impl HostEstate {
    /// Does what an operator ordered, and says what it did.
    pub(super) async fn rotate(
        &self,
        cluster: &str,
        order: CredentialOrder,
        tree: actix::Recipient<Command>,
    ) -> Result<Rotated, Refusal> {
        let tenant = self.tenant_of(cluster).map_err(Refusal::NotFound)?;
        let is_k3s = tenant.distribution() == Distribution::K3s;
        if is_k3s && matches!(order.what, Rotate::ServiceAccountKey | Rotate::EncryptionKey) {
            let text = format!(
                "{cluster} runs k3s, which keeps this key itself: see `k3s certificate` and `k3s secrets-encrypt`"
            );
            return Err(Refusal::BadRequest(text));
        }
        let turn = Arc::new(self.0.turns.take(cluster, UPKEEP_ENDS_WITHIN).await?);
        let mut rotation = Rotation::new(self, tenant, tree, Arc::clone(&turn));
        let carried_out = unless_recalled(&turn, rotation.carry_out(order)).await;
        self.notice(cluster).await;
        carried_out?;
        Ok(Rotated { done: rotation.done })
    }

    /// The hourly look at one tenant: what is due is made, and what was begun is finished.
    pub(super) async fn keep(
        &self,
        cluster: &str,
        tree: actix::Recipient<Command>,
    ) -> Result<Vec<String>, Refusal> {
        let tenant = self.tenant_of(cluster).map_err(Refusal::NotFound)?;
        // Whoever has the turn does the same.
        let Some(turn) = self.0.turns.take_for_upkeep(cluster).map(Arc::new) else { return Ok(Vec::new()) };
        let mut rotation = Rotation::new(self, tenant, tree, Arc::clone(&turn));
        let looked = unless_recalled(&turn, rotation.look()).await;
        if !rotation.done.is_empty() {
            self.notice(cluster).await;
        }
        looked?;
        Ok(rotation.done)
    }
}

/// A cluster that is deleted is waited for by nobody.
async fn unless_recalled(
    turn: &Turn,
    work: impl Future<Output = Result<(), Refusal>>,
) -> Result<(), Refusal> {
    tokio::select! {
        done = work => done,
        () = turn.recalled() => Err(Refusal::Conflict("the cluster is being deleted".to_owned())),
    }
}

impl Rotation {
    fn new(estate: &HostEstate, tenant: Tenant, tree: actix::Recipient<Command>, turn: Arc<Turn>) -> Self {
        let tree = Tree::new(tenant.name(), tree);
        Self { estate: estate.clone(), tenant, tree, turn, done: Vec::new() }
    }

    async fn carry_out(&mut self, order: CredentialOrder) -> Result<(), Refusal> {
        if !self.has_keys().await? {
            let text = format!("{} has no credentials yet: it was never started", self.tenant.name());
            return Err(Refusal::Conflict(text));
        }
        match order.what {
            Rotate::Certificates => self.certificates(if order.now { Which::All } else { Which::Due }).await,
            Rotate::ServiceAccountKey => {
                let keep =
                    order.keep_days.map_or(OLD_SIGNER, |days| Duration::from_secs(u64::from(days) * 86_400));
                self.new_signer(keep).await
            }
            Rotate::EncryptionKey => self.new_encryption_key().await,
            Rotate::SealKey => self.new_seal_key().await,
        }
    }

    async fn look(&mut self) -> Result<(), Refusal> {
        if !self.has_keys().await? {
            return Ok(());
        }
        self.certificates(Which::Due).await?;
        self.finish_seal_key().await?;
        if self.tenant.distribution() == Distribution::Kubernetes {
            self.retire_signers().await?;
            self.go_on_sealing().await?;
        }
        Ok(())
    }

    fn say(&mut self, what: impl Into<String>) {
        let what = what.into();
        tracing::info!(cluster = self.tenant.name(), "{what}");
        self.done.push(what);
    }

    fn failed(&self, reason: impl std::fmt::Display) -> Refusal {
        Refusal::Failed(format!("{}: {reason}; saying it again goes on from here", self.tenant.name()))
    }

    /// It was started once.
    async fn has_keys(&self) -> Result<bool, Refusal> {
        self.on_disk(|pki| Ok(pki.dir.exists())).await
    }

    /// File work on its keys. Nothing where the name belongs to another cluster by now; and the turn is not given back before it
    /// is done, whoever leaves off meanwhile.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Pki) -> Result<T, PkiError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let (tenant, turn) = (self.tenant.clone(), Arc::clone(&self.turn));
        let worked = self.estate.off_thread(move |inner| {
            let _turn = turn;
            inner.is_still(&tenant)?;
            work(&tenant.pki()).map_err(|error| error.to_string())
        });
        worked.await.map_err(|reason| self.failed(reason))
    }

    async fn api(&self) -> Result<ApiServer, Refusal> {
        self.estate.0.is_still(&self.tenant).map_err(Refusal::Conflict)?;
        ApiServer::new(&self.tenant.administrator()).await.map_err(|reason| self.failed(reason))
    }

    async fn restart(&mut self, component: &str, why: &str) -> Result<(), Refusal> {
        self.estate.0.is_still(&self.tenant).map_err(Refusal::Conflict)?;
        self.tree.restart(component).await?;
        self.say(format!("{component} was restarted: {why}"));
        Ok(())
    }
}

/// Asks until the answer is yes. `false`: it was not in time. What fails meanwhile is asked again.
async fn until<F: Future<Output = Result<bool, String>>>(mut ask: impl FnMut() -> F) -> bool {
    let asking = async {
        while !matches!(ask().await, Ok(true)) {
            tokio::time::sleep(ASK_AGAIN).await;
        }
    };
    tokio::time::timeout(TAKEN_UP_WITHIN, asking).await.is_ok()
}
