//! The proof that controllers work: a namespace is made, and the default ServiceAccount and the root CA appear in it.
//!
//! Called by the gates of kube-controller-manager and k3s, whose own health pages are green earlier.

use super::administrator::Administrator;
use super::defaults;
use berth_actors::host::WaitNote;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, ResourceExt};
use std::time::Duration;

/// Marks namespaces of this probe, so that what an interrupted one left is found again.
const LABEL: &str = "berth.probe=fresh-namespace";

/// Counts the nudges, on the probe's namespace.
const NUDGED: &str = "berth.probe/nudged";

/// Longer than a controller manager that is not held up needs, far below the 3 s it is held up otherwise.
const NUDGE: Duration = Duration::from_millis(500);

/// After this the probe begins anew: a controller manager that was slow finds a younger namespace.
const ATTEMPT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
enum ProbeError {
    #[error("the API server: {0}")]
    Api(#[from] kube::Error),
    #[error("the API server: {0}")]
    Watch(#[from] kube::runtime::wait::Error),
    #[error("no ServiceAccount in a fresh namespace within {} s", ATTEMPT.as_secs())]
    Deadline,
}

/// Resolves once the controllers behind the administrator's API server work. `Err`: its files make no client.
pub(super) async fn gate(administrator: &Administrator, note: &WaitNote) -> Result<(), String> {
    let client = administrator.client().await?;
    note.say("a ServiceAccount in a fresh namespace");
    while let Err(error) = is_served(&client).await {
        note.say(error.to_string());
        tokio::time::sleep(defaults::API_PROBE).await;
    }
    Ok(())
}

/// One attempt. Dropped midway it still deletes its namespace.
async fn is_served(client: &Client) -> Result<(), ProbeError> {
    let attempt = async {
        let probe = Probe::begin(client).await?;
        tokio::select! {
            served = probe.is_served(client) => served,
            failed = probe.nudge() => Err(failed.into()),
        }
    };
    tokio::time::timeout(ATTEMPT, attempt).await.map_err(|_| ProbeError::Deadline)?
}

struct Probe {
    name: String,
    namespaces: Api<Namespace>,
}

impl Probe {
    async fn begin(client: &Client) -> Result<Self, kube::Error> {
        let namespaces = Api::<Namespace>::all(client.clone());
        let mut namespace = Namespace::default();
        namespace.metadata.generate_name = Some("berth-probe-".to_owned());
        namespace.metadata.labels =
            Some(LABEL.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned())).into_iter().collect());
        let made = namespaces.create(&PostParams::default(), &namespace).await?;
        Ok(Self { name: made.name_any(), namespaces })
    }

    async fn is_served(&self, client: &Client) -> Result<(), ProbeError> {
        self.sweep().await?;
        let accounts = Api::<ServiceAccount>::namespaced(client.clone(), &self.name);
        let configs = Api::<ConfigMap>::namespaced(client.clone(), &self.name);
        await_condition(accounts, "default", |account: Option<&ServiceAccount>| account.is_some()).await?;
        await_condition(configs, "kube-root-ca.crt", |config: Option<&ConfigMap>| config.is_some()).await?;
        Ok(())
    }

    /// Deletes what the daemon's sudden end left of earlier probes.
    async fn sweep(&self) -> Result<(), kube::Error> {
        for left in self.namespaces.list(&ListParams::default().labels(LABEL)).await? {
            if left.metadata.deletion_timestamp.is_none() && left.name_any() != self.name {
                self.namespaces.delete(&left.name_any(), &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }

    /// Writes now and then, and returns only when that fails.
    ///
    /// kine reports progress to the API server only when every watch has seen an event as new as the newest write. A watch
    /// that began after that write has seen none, so while nothing is written, consistent reads (a controller manager
    /// that fills its caches, this probe) run into a timeout of 3 s, again and again. Any write ends that.
    async fn nudge(&self) -> kube::Error {
        let mut turn = 0_u64;
        loop {
            tokio::time::sleep(NUDGE).await;
            turn += 1;
            let patch = serde_json::json!({ "metadata": { "annotations": { NUDGED: turn.to_string() } } });
            let patch = Patch::Merge(patch);
            if let Err(error) = self.namespaces.patch(&self.name, &PatchParams::default(), &patch).await {
                return error;
            }
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let (name, namespaces) = (std::mem::take(&mut self.name), self.namespaces.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                // What fails here is swept by the next probe.
                let params = DeleteParams::default();
                let _swept_later = tokio::time::timeout(ATTEMPT, namespaces.delete(&name, &params)).await;
            });
        }
    }
}
