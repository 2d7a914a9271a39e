//! Keeps every tenant's credentials such that a third of their life is left, and finishes rotations that a daemon died over.
//!
//! The daemon runs [`HostEstate::keep_credentials`] for its whole life. The cloud controller manager (M4) notices a new file
//! by itself; of the others, [`super::rotation`] sees to it.

use super::{HostEstate, Inner};
use crate::ccm;
use crate::tenant::credentials::Credentials;
use crate::tenant::kubeconfig;
use actix::Recipient;
use berth_actors::message::{Command, Refusal};
use futures::{StreamExt, stream};
use std::sync::PoisonError;
use std::time::Duration;
use time::OffsetDateTime;

/// How often the credentials are looked at: a renewal due at two thirds of seven days may be an hour late.
const LOOK: Duration = Duration::from_hours(1);
/// The first one: whatever an earlier daemon left is adopted or started by then.
const FIRST_LOOK: Duration = Duration::from_mins(1);

/// One look at one cluster, with the restarts and the sealing it may take. What it leaves undone, the next one goes on with.
const PATIENCE: Duration = Duration::from_mins(30);
/// More would start that many clusters' components together; a few that hang must not keep the others waiting.
const AT_ONCE: usize = 16;

impl HostEstate {
    /// Never returns. A tenant whose credentials cannot be looked at is logged each time and disturbs no other.
    pub async fn keep_credentials(self, tree: Recipient<Command>) {
        let mut wait = FIRST_LOOK;
        loop {
            tokio::time::sleep(wait).await;
            wait = LOOK;
            let look = |cluster: String| {
                let (estate, tree) = (self.clone(), tree.clone());
                async move {
                    let looked = estate.look_at(&cluster, tree);
                    if let Err(reason) = Box::pin(within(PATIENCE, looked)).await {
                        tracing::error!(cluster, %reason, "its credentials are not as they should be");
                    }
                }
            };
            each(self.names(), look).await;
        }
    }

    async fn look_at(&self, cluster: &str, tree: Recipient<Command>) -> Result<(), Refusal> {
        let name = cluster.to_owned();
        let renewed = self.off_thread(move |inner| {
            renew(inner, &name, crate::clock::now());
            Ok::<_, std::convert::Infallible>(())
        });
        renewed.await.map_err(Refusal::Failed)?;
        self.keep(cluster, tree).await.map(drop)
    }
}

/// A task for each, so that one that blocks or panics is alone with that.
async fn each<F: Future<Output = ()> + Send + 'static>(clusters: Vec<String>, look: impl Fn(String) -> F) {
    let looked = |cluster: String| {
        let look = tokio::spawn(look(cluster.clone()));
        async move {
            if let Err(error) = look.await {
                tracing::error!(cluster, %error, "a look at credentials did not end");
            }
        }
    };
    stream::iter(clusters).map(looked).buffer_unordered(AT_ONCE).collect::<()>().await;
}

async fn within(patience: Duration, look: impl Future<Output = Result<(), Refusal>>) -> Result<(), Refusal> {
    let late = |_| Refusal::Failed(format!("not done within {} s", patience.as_secs()));
    tokio::time::timeout(patience, look).await.map_err(late)?
}

/// Only where it has a credential: the first one is minted by the controller's own start. Blocking.
fn renew(inner: &Inner, cluster: &str, now: OffsetDateTime) {
    let known = inner.known.lock().unwrap_or_else(PoisonError::into_inner).get(cluster).cloned();
    let data = inner.layout.cluster(cluster);
    let Some(tenant) = known.filter(|_| ccm::credential_file(&data).exists()) else { return };
    let credentials = Credentials::of(tenant.distribution, &data);
    let server = kubeconfig::server(tenant.port);
    match ccm::renew(&data, &credentials, &server, tenant.owned.accounts.owner, now) {
        Ok(renewed) if renewed.minted => {
            tracing::info!(%cluster, "the cloud controller manager's credential was renewed");
        }
        Ok(_) => {}
        Err(error) => tracing::error!(%cluster, %error, "the credential was not renewed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[tokio::test(start_paused = true)]
    async fn a_cluster_that_hangs_or_panics_holds_up_no_other() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let look = |cluster: String| {
            let seen = Arc::clone(&seen);
            async move {
                let looked = within(PATIENCE, async {
                    match cluster.as_str() {
                        "hangs" => std::future::pending().await,
                        "panics" => panic!("as it was told to"),
                        _ => Ok(()),
                    }
                });
                let outcome = looked.await.map_err(|refusal| refusal.to_string());
                seen.lock().unwrap().push((cluster, outcome));
            }
        };
        each(["hangs", "panics", "well"].map(str::to_owned).into(), look).await;
        let late = Err("not done within 1800 s".to_owned());
        assert_eq!(*seen.lock().unwrap(), [("well".to_owned(), Ok(())), ("hangs".to_owned(), late)]);
    }
}
