//! What the control API tells of tenants' credentials, and what the status says of those that are not in order.

use super::{HostEstate, inventory};
use crate::control::api::Credentials;
use berth_actors::message::Refusal;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The status is asked for every second; what it says of certificates changes in days, and with a rotation.
const KEPT: Duration = Duration::from_mins(10);

/// What was last found wrong, and when.
#[derive(Debug, Default)]
pub(super) struct Notices(Mutex<Option<(Instant, Vec<String>)>>);

impl Notices {
    fn fresh(&self) -> Option<Vec<String>> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.as_ref().filter(|(at, _)| at.elapsed() < KEPT).map(|(_, lines)| lines.clone())
    }

    fn set(&self, held: Option<(Instant, Vec<String>)>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = held;
    }
}

impl HostEstate {
    pub(super) async fn inventory(&self, cluster: &str) -> Result<Credentials, Refusal> {
        let tenant = self.tenant_of(cluster).map_err(Refusal::NotFound)?;
        let cluster = cluster.to_owned();
        let looked = self.off_thread(move |_| {
            if !tenant.pki().dir.exists() {
                let text = format!("{cluster} has no credentials yet: it was never started");
                return Ok::<_, std::convert::Infallible>(Err(Refusal::Conflict(text)));
            }
            let credentials = inventory::of(&tenant, crate::clock::now());
            Ok(Ok(Credentials { cluster, credentials }))
        });
        looked.await.map_err(Refusal::Failed)?
    }

    /// Of all tenants, one line each.
    pub(super) async fn notices(&self) -> Vec<String> {
        if let Some(fresh) = self.0.notices.fresh() {
            return fresh;
        }
        let names: Vec<String> = self.names();
        let mut lines = Vec::new();
        for name in names {
            // One that was never started has none; one that is deleted meanwhile has none any more.
            if let Ok(Credentials { credentials, .. }) = self.inventory(&name).await {
                lines.extend(inventory::notices(&name, &credentials));
            }
        }
        self.0.notices.set(Some((Instant::now(), lines.clone())));
        lines
    }

    pub(super) fn forget_notices(&self) {
        self.0.notices.set(None);
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }
}
