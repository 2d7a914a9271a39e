//! The proof that controllers work: a namespace is made, and the default ServiceAccount and the root CA appear in it.

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Config, ResourceExt};
use std::path::Path;
use std::time::Duration;

/// Marks namespaces of this probe, so that what an interrupted one left is found again.
const LABEL: &str = "berth.probe=fresh-namespace";

/// After this the probe begins anew: a controller manager that was slow finds a younger namespace.
const ATTEMPT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub(super) enum ProbeError {
    #[error("kube-apiserver: {0}")]
    Api(#[from] kube::Error),
    #[error("kube-apiserver: {0}")]
    Watch(#[from] kube::runtime::wait::Error),
    #[error("no ServiceAccount in a fresh namespace within {} s", ATTEMPT.as_secs())]
    Deadline,
}

pub(super) async fn client(kubeconfig: &Path) -> Result<Client, String> {
    let path = kubeconfig.display();
    let text =
        tokio::fs::read_to_string(kubeconfig).await.map_err(|error| format!("read {path}: {error}"))?;
    let kubeconfig = Kubeconfig::from_yaml(&text).map_err(|error| format!("{path}: {error}"))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .map_err(|error| format!("{path}: {error}"))?;
    Client::try_from(config).map_err(|error| format!("{path}: {error}"))
}

/// One attempt. Dropped midway it still deletes its namespace.
pub(super) async fn is_served(client: &Client) -> Result<(), ProbeError> {
    let attempt = async {
        sweep(client).await?;
        let namespace = Probe::begin(client).await?;
        let accounts = Api::<ServiceAccount>::namespaced(client.clone(), &namespace.name);
        let configs = Api::<ConfigMap>::namespaced(client.clone(), &namespace.name);
        let exists = |object: Option<&ServiceAccount>| object.is_some();
        await_condition(accounts, "default", exists).await?;
        let exists = |object: Option<&ConfigMap>| object.is_some();
        await_condition(configs, "kube-root-ca.crt", exists).await?;
        Ok(())
    };
    tokio::time::timeout(ATTEMPT, attempt).await.map_err(|_| ProbeError::Deadline)?
}

/// Deletes what the daemon's sudden end left.
async fn sweep(client: &Client) -> Result<(), kube::Error> {
    let namespaces = Api::<Namespace>::all(client.clone());
    for left in namespaces.list(&ListParams::default().labels(LABEL)).await? {
        if left.metadata.deletion_timestamp.is_none() {
            namespaces.delete(&left.name_any(), &DeleteParams::default()).await?;
        }
    }
    Ok(())
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
