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
use std::time::Duration;
use tree::Tree;
pub(super) use turn::Turns;

/// A component that watches its files looks at them at least once a minute.
const TAKEN_UP_WITHIN: Duration = Duration::from_secs(150);
/// Between two questions whether it has: each is a request.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// A tenant, the tree it runs in, and what was done to it.
struct Rotation {
    estate: HostEstate,
    tenant: Tenant,
    tree: Tree,
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
        let _turn = self.0.turns.take(cluster)?;
        let mut rotation = Rotation::new(self, tenant, tree);
        if !rotation.has_keys().await? {
            return Err(Refusal::Conflict(format!("{cluster} has no credentials yet: it was never started")));
        }
        match order.what {
            Rotate::Certificates => {
                rotation.certificates(if order.now { Which::All } else { Which::Due }).await?;
            }
            Rotate::ServiceAccountKey => {
                let keep =
                    order.keep_days.map_or(OLD_SIGNER, |days| Duration::from_secs(u64::from(days) * 86_400));
                rotation.new_signer(keep).await?;
            }
            Rotate::EncryptionKey => rotation.new_encryption_key().await?,
            Rotate::SealKey => rotation.new_seal_key().await?,
        }
        self.forget_notices();
        Ok(Rotated { done: rotation.done })
    }

    /// The hourly look at one tenant: what is due is made, and what was begun is finished.
    pub(super) async fn keep(
        &self,
        cluster: &str,
        tree: actix::Recipient<Command>,
    ) -> Result<Vec<String>, Refusal> {
        let tenant = self.tenant_of(cluster).map_err(Refusal::NotFound)?;
        let is_kubernetes = tenant.distribution() == Distribution::Kubernetes;
        // Whoever has the turn does the same.
        let Ok(_turn) = self.0.turns.take(cluster) else { return Ok(Vec::new()) };
        let mut rotation = Rotation::new(self, tenant, tree);
        if !rotation.has_keys().await? {
            return Ok(Vec::new());
        }
        rotation.certificates(Which::Due).await?;
        rotation.finish_seal_key().await?;
        if is_kubernetes {
            rotation.retire_signers().await?;
            rotation.go_on_sealing().await?;
        }
        if !rotation.done.is_empty() {
            self.forget_notices();
        }
        Ok(rotation.done)
    }
}

impl Rotation {
    fn new(estate: &HostEstate, tenant: Tenant, tree: actix::Recipient<Command>) -> Self {
        let tree = Tree::new(tenant.name(), tree);
        Self { estate: estate.clone(), tenant, tree, done: Vec::new() }
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

    /// File work on its keys.
    async fn on_disk<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Pki) -> Result<T, PkiError> + Send + 'static,
    ) -> Result<T, Refusal> {
        let pki = self.tenant.pki();
        self.estate.off_thread(move |_| work(&pki)).await.map_err(|reason| self.failed(reason))
    }

    async fn api(&self) -> Result<ApiServer, Refusal> {
        ApiServer::new(&self.tenant.administrator()).await.map_err(|reason| self.failed(reason))
    }

    async fn restart(&mut self, component: &str, why: &str) -> Result<(), Refusal> {
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
