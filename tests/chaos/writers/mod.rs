//! Clients that write through the front and to every layer of a tenant, and remember what was acknowledged.

mod etcd;
mod sql;

use super::args::Kind;
use super::line::{Place, ask};
use super::system::DEMO;
use berth::layout::Layout;
use kube::api::{Api, DynamicObject, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A real API server answers in milliseconds, or not before it is back.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long what is there may take to be read, in as many tries as it takes.
const READ_WITHIN: Duration = Duration::from_secs(20);
/// Between two of them.
const AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
enum Target {
    Line(Place),
    /// The port of demo's API server, from the lease file.
    Leased(PathBuf),
    Kube {
        kubeconfig: PathBuf,
        context: Option<&'static str>,
    },
    /// The socket of a real kine.
    Kine(PathBuf),
    /// The socket directory of a real postgres.
    Postgres(PathBuf),
}

pub struct Writer {
    pub name: &'static str,
    target: Target,
    acknowledged: Arc<Mutex<BTreeSet<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Writer {
    pub fn start(kind: Kind, layout: &Layout, front: SocketAddr) -> Vec<Self> {
        let sockets = layout.sockets(DEMO).unwrap();
        let kubeconfig = layout.cluster(DEMO).join("kubeconfig");
        let (targets, pause) = match kind {
            Kind::StandIn => (
                [
                    Target::Line(Place::Port(front)),
                    Target::Leased(layout.state().join("ports.json")),
                    Target::Line(Place::Socket(sockets.join("kine.sock"))),
                    Target::Line(Place::Socket(sockets.join("postgres.sock"))),
                ],
                Duration::from_millis(20),
            ),
            Kind::Real => (
                [
                    Target::Kube {
                        kubeconfig: layout.kcp().join("admin.kubeconfig"),
                        context: Some("system:admin"),
                    },
                    Target::Kube { kubeconfig, context: None },
                    Target::Kine(sockets.join("kine.sock")),
                    Target::Postgres(sockets),
                ],
                Duration::from_millis(200),
            ),
        };
        let start = |(name, target): (&'static str, Target)| {
            let acknowledged = Arc::<Mutex<BTreeSet<String>>>::default();
            let (written, to) = (Arc::clone(&acknowledged), target.clone());
            // Stand-ins of one cluster keep one list.
            let letter = name.replace(|letter: char| !letter.is_ascii_lowercase(), "-");
            let task = tokio::spawn(async move {
                for number in 0u64.. {
                    let key = format!("{letter}-{number}");
                    if to.write(&key).await.is_ok() {
                        written.lock().unwrap().insert(key);
                    }
                    tokio::time::sleep(pause).await;
                }
            });
            Self { name, target, acknowledged, task }
        };
        let names = ["kcp through the front", "demo", "demo/kine", "demo/postgres"];
        names.into_iter().zip(targets).map(start).collect()
    }

    pub fn acknowledged(&self) -> BTreeSet<String> {
        self.acknowledged.lock().unwrap().clone()
    }

    /// Everything that was acknowledged before this call is there. A list may be behind for a moment: the API server asks kine how
    /// far it should be, and kine says how far its last look at the database went.
    pub async fn check(&self) -> Result<usize, String> {
        let wanted = self.acknowledged();
        let began = Instant::now();
        loop {
            let missing = match self.target.keys().await {
                Ok(present) => wanted.difference(&present).cloned().collect::<Vec<_>>(),
                // One question may take long where six systems share two cores; what hangs does not answer the next either.
                Err(reason) if began.elapsed() > READ_WITHIN => {
                    return Err(format!("{} cannot be read: {reason}", self.name));
                }
                Err(_) => {
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            };
            if missing.is_empty() {
                return Ok(wanted.len());
            }
            if began.elapsed() > READ_WITHIN {
                let (name, lost, all) = (self.name, missing.len(), wanted.len());
                return Err(format!("{name}: {lost} of {all} acknowledged writes are lost: {missing:?}"));
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
}

impl Target {
    fn place(&self) -> Result<Place, String> {
        match self {
            Self::Line(place) => Ok(place.clone()),
            Self::Leased(file) => {
                let text = std::fs::read(file).map_err(|error| error.to_string())?;
                let leases: serde_json::Value =
                    serde_json::from_slice(&text).map_err(|error| error.to_string())?;
                let port = leases["leases"][DEMO].as_u64().ok_or("demo has no port")?;
                Ok(Place::Port((Ipv4Addr::LOCALHOST, u16::try_from(port).unwrap()).into()))
            }
            _ => Err("it does not speak lines".to_owned()),
        }
    }

    async fn write(&self, key: &str) -> Result<(), String> {
        let written = async {
            match self {
                Self::Line(_) | Self::Leased(_) => {
                    ask(&self.place()?, &format!("put {key} 1")).await.map(drop)
                }
                Self::Kube { .. } => self.create_config_map(key).await,
                Self::Kine(socket) => etcd::create(socket, key).await,
                Self::Postgres(sockets) => sql::insert(sockets, key).await,
            }
        };
        timeout(PATIENCE, written).await.map_err(|_| "no answer".to_owned())?
    }

    async fn keys(&self) -> Result<BTreeSet<String>, String> {
        let read = async {
            match self {
                Self::Line(_) | Self::Leased(_) => {
                    Ok(ask(&self.place()?, "keys").await?.split(' ').map(str::to_owned).collect())
                }
                Self::Kube { .. } => self.config_map_names().await,
                Self::Kine(socket) => etcd::names(socket).await,
                Self::Postgres(sockets) => sql::names(sockets).await,
            }
        };
        timeout(PATIENCE, read).await.map_err(|_| "no answer".to_owned())?
    }

    async fn create_config_map(&self, key: &str) -> Result<(), String> {
        let object = serde_json::from_value(serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": key}, "data": {"key": "1"},
        }));
        let api = self.config_maps().await?;
        let created = api.create(&PostParams::default(), &object.unwrap()).await;
        created.map(drop).map_err(|error| error.to_string())
    }

    async fn config_map_names(&self) -> Result<BTreeSet<String>, String> {
        let api = self.config_maps().await?;
        let found = api.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
        Ok(found.into_iter().filter_map(|object| object.metadata.name).collect())
    }

    async fn config_maps(&self) -> Result<Api<DynamicObject>, String> {
        let Self::Kube { kubeconfig, context } = self else {
            return Err("it does not speak Kubernetes".to_owned());
        };
        let file = Kubeconfig::read_from(kubeconfig).map_err(|error| error.to_string())?;
        let options =
            KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
        let config = kube::Config::from_custom_kubeconfig(file, &options).await;
        let client = kube::Client::try_from(config.map_err(|error| error.to_string())?);
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        Ok(Api::namespaced_with(client.map_err(|error| error.to_string())?, "default", &resource))
    }
}
