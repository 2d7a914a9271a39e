//! What the control API tells of tenants' credentials, and what the status says of those that are not in order.

use super::{HostEstate, inventory};
use crate::control::api::Credentials;
use berth_actors::message::Refusal;
use futures::{StreamExt, stream};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What is said of certificates changes in days, or with a rotation, which has its cluster looked at itself.
const LOOK: Duration = Duration::from_mins(10);
/// An earlier daemon's components are adopted by then.
const FIRST_LOOK: Duration = Duration::from_secs(15);
/// A handful of files. One cluster's that cannot be read in that time hold up nobody else's.
const PATIENCE: Duration = Duration::from_secs(30);
const AT_ONCE: usize = 8;

/// What was last found wrong, by cluster.
#[derive(Debug, Default)]
pub(super) struct Notices(Mutex<BTreeMap<String, Vec<String>>>);

impl Notices {
    fn put(&self, cluster: &str, lines: Vec<String>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(cluster.to_owned(), lines);
    }

    fn retain(&self, names: &[String]) {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.retain(|cluster, _| names.contains(cluster));
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().flatten().cloned().collect()
    }
}

impl HostEstate {
    async fn inventory(&self, cluster: &str) -> Result<Credentials, Refusal> {
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

    /// Of all tenants, one line each: what was found last. Asked for each status: reads nothing.
    pub(super) fn notices(&self) -> Vec<String> {
        self.0.notices.all()
    }

    /// Never returns.
    pub async fn keep_noticing(self) {
        let mut wait = FIRST_LOOK;
        loop {
            tokio::time::sleep(wait).await;
            wait = LOOK;
            let names = self.names();
            self.0.notices.retain(&names);
            let notice = |name: String| {
                let estate = &self;
                async move { estate.notice(&name).await }
            };
            stream::iter(names).for_each_concurrent(AT_ONCE, notice).await;
        }
    }

    /// Looks at one tenant now.
    pub(super) async fn notice(&self, cluster: &str) {
        let lines = match tokio::time::timeout(PATIENCE, self.inventory(cluster)).await {
            Ok(Ok(found)) => inventory::notices(cluster, &found.credentials),
            // One that was never started has none; one that is deleted meanwhile has none any more.
            Ok(Err(_)) => Vec::new(),
            Err(_) => {
                vec![format!("{cluster}: its credentials could not be read within {} s", PATIENCE.as_secs())]
            }
        };
        self.0.notices.put(cluster, lines);
    }

    /// What an operator is shown, the status says as well.
    pub(super) async fn shown(&self, cluster: &str) -> Result<Credentials, Refusal> {
        let found = self.inventory(cluster).await?;
        self.0.notices.put(cluster, inventory::notices(cluster, &found.credentials));
        Ok(found)
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner).keys().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_says_what_was_found_last_of_each_cluster_there_is() {
        let notices = Notices::default();
        notices.put("demo", vec!["demo: ends".to_owned()]);
        notices.put("gone", vec!["gone: ends".to_owned()]);
        notices.put("demo", vec!["demo: ends soon".to_owned()]);
        notices.retain(&["demo".to_owned()]);
        assert_eq!(notices.all(), ["demo: ends soon"]);
    }
}
