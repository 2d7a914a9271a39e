//! Keeps every tenant's credentials such that a third of their life is left, and finishes rotations that a daemon died over.
//!
//! The daemon runs [`HostEstate::keep_credentials`] for its whole life. The cloud controller manager (M4) notices a new file
//! by itself; of the others, [`super::rotation`] sees to it.

use super::{HostEstate, Inner};
use crate::ccm;
use crate::tenant::credentials::Credentials;
use crate::tenant::kubeconfig;
use actix::Recipient;
use berth_actors::message::Command;
use std::sync::PoisonError;
use std::time::Duration;
use time::OffsetDateTime;

/// How often the credentials are looked at: a renewal due at two thirds of seven days may be an hour late.
const LOOK: Duration = Duration::from_hours(1);
/// The first one: whatever an earlier daemon left is adopted or started by then.
const FIRST_LOOK: Duration = Duration::from_mins(1);

impl HostEstate {
    /// Never returns. A tenant whose credential cannot be renewed is logged each time and disturbs no other.
    pub async fn keep_credentials(self, tree: Recipient<Command>) {
        let mut wait = FIRST_LOOK;
        loop {
            tokio::time::sleep(wait).await;
            wait = LOOK;
            let outcome = self.off_thread(|inner| {
                renew_all(inner, crate::clock::now());
                Ok::<_, std::convert::Infallible>(())
            });
            if let Err(reason) = outcome.await {
                tracing::error!(%reason, "credentials were not looked at");
            }
            for cluster in self.names() {
                if let Err(reason) = self.keep(&cluster, tree.clone()).await {
                    tracing::error!(cluster, %reason, "its credentials are not as they should be");
                }
            }
        }
    }
}

/// Only tenants that have a credential: the first one is minted by the controller's own start. Blocking.
fn renew_all(inner: &Inner, now: OffsetDateTime) {
    let known = inner.known.lock().unwrap_or_else(PoisonError::into_inner).clone();
    for (cluster, tenant) in known {
        let data = inner.layout.cluster(&cluster);
        if !ccm::credential_file(&data).exists() {
            continue;
        }
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
}
