//! A tenant as far as the cloud controller manager needs one, and kubelets that register their Nodes with it.

use super::real_stack::{ApiServer, DEADLINE, Home, Kine, Postgres, Process, user};
use berth::ccm::{self, CloudControllerManager, Snapshot};
use berth::components::Program;
use berth::tenant::credentials::Credentials;
use berth_actors::host::{Blueprint, Context, Distribution, GateError, Running, WaitNote};
use berth_actors::identity::Identity;
use berth_actors::spec::ProcessSpec;
use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::runtime::wait::await_condition;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use tokio::time::timeout;

pub(crate) const LABEL: &str = "node.socialweb.computer/cluster";
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// Everything before the cloud controller manager in the chain.
pub(crate) struct Tenant {
    pub(crate) home: Home,
    pub(crate) api: ApiServer,
    pub(crate) kine: Kine,
    pub(crate) postgres: Postgres,
}

impl Tenant {
    pub(crate) async fn start() -> Self {
        let home = Home::new();
        let postgres = Postgres::start(&home).await;
        let kine = Kine::start(&postgres).await;
        let api = ApiServer::start(&home, &kine).await;
        Self { home, api, kine, postgres }
    }

    /// What a restart of the API server is to its clients.
    pub(crate) async fn with_another_api_server(self) -> Self {
        let Self { home, api, kine, postgres } = self;
        let address = api.address;
        api.kill();
        let api = ApiServer::again(&home, &kine, address).await;
        Self { home, api, kine, postgres }
    }

    pub(crate) fn blueprint(&self) -> CloudControllerManager {
        CloudControllerManager {
            cluster: "demo".to_owned(),
            data_dir: self.home.data(),
            server: format!("https://{}", self.api.address),
            credentials: self.credentials(),
            program: Program::real(self.program()),
            user: user(),
            output: self.home.path().join("ccm.log"),
        }
    }

    pub(crate) fn credentials(&self) -> Credentials {
        Credentials::of(Distribution::Kubernetes, &self.home.data())
    }

    /// A copy that `nobody` can reach, wherever the target directory is.
    pub(crate) fn program(&self) -> PathBuf {
        let path = self.home.path().join(ccm::PROGRAM);
        if !path.exists() {
            let built = env!("CARGO_BIN_EXE_socialweb-cloud-controller-manager");
            fs::copy(built, &path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        path
    }

    pub(crate) async fn prepared(&self) -> ProcessSpec {
        self.blueprint().prepare(&Context::default(), &WaitNote::default()).await.unwrap()
    }

    pub(crate) fn running(log: PathBuf, log_offset: u64) -> Running {
        let identity = Identity { boot_id: "b".into(), pid: 1, start_time: 1 };
        Running { identity, address: None, log, log_offset }
    }

    /// Prepared, started and through its gate.
    pub(crate) async fn controller(&self) -> Process {
        let spec = self.prepared().await;
        let offset = fs::metadata(&spec.output).map_or(0, |meta| meta.len());
        let process = Process::of_spec(&spec);
        self.gate(offset).await.unwrap();
        process
    }

    pub(crate) async fn gate(&self, offset: u64) -> Result<(), GateError> {
        let running = Self::running(self.log(), offset);
        let gate = timeout(DEADLINE, async { self.blueprint().ready(&running, &WaitNote::default()).await });
        let Ok(result) = gate.await else {
            panic!("the gate stayed closed:\n{}", fs::read_to_string(self.log()).unwrap())
        };
        result
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.home.path().join("ccm.log")
    }

    pub(crate) fn snapshot(&self) -> PathBuf {
        ccm::snapshot_file(&self.home.data())
    }

    pub(crate) fn know(&self, name: &str) {
        Snapshot::add(&self.snapshot(), &name.parse().unwrap(), user()).unwrap();
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.api.admin())
    }

    /// A kubelet that registers itself.
    pub(crate) async fn register(&self, name: &str, provider_id: Option<&str>) -> Node {
        let taint =
            |key: &str| Taint { key: key.to_owned(), effect: "NoSchedule".to_owned(), ..Taint::default() };
        let node = Node {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: Some(NodeSpec {
                provider_id: provider_id.map(str::to_owned),
                taints: Some(vec![taint(UNINITIALIZED), taint("somebody.else/taint")]),
                ..NodeSpec::default()
            }),
            status: None,
        };
        self.nodes().create(&PostParams::default(), &node).await.unwrap()
    }

    pub(crate) async fn in_line(&self, name: &str) -> Node {
        let in_line = |node: Option<&Node>| node.is_some_and(|node| is_labelled(node) && !is_tainted(node));
        let waited = timeout(DEADLINE, await_condition(self.nodes(), name, in_line)).await;
        let Ok(node) = waited else {
            panic!("{name} was not patched:\n{}", fs::read_to_string(self.log()).unwrap())
        };
        node.unwrap().unwrap()
    }
}

pub(crate) fn is_labelled(node: &Node) -> bool {
    node.metadata.labels.as_ref().and_then(|labels| labels.get(LABEL)).map(String::as_str) == Some("demo")
}

pub(crate) fn is_tainted(node: &Node) -> bool {
    taints(node).contains(&UNINITIALIZED)
}

pub(crate) fn taints(node: &Node) -> Vec<&str> {
    node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).map(|taint| taint.key.as_str()).collect()
}

pub(crate) fn provider_id(node: &Node) -> Option<&str> {
    node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref())
}
