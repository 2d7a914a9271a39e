//! A thousand Nodes: what they cost the API server, and the program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking
#![allow(clippy::disallowed_methods, reason = "what a test reads nobody planted")]
#![allow(dead_code, reason = "it shares its tenant with the tests of a few Nodes")]

#[path = "../real_stack/mod.rs"]
mod real_stack;
mod tenant;

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{
    ContainerImage, Node, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, Taint,
};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher;
use real_stack::{ApiServer, user};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tenant::Tenant;
use tokio::time::timeout;

const NODES: usize = 1000;
/// What a kubelet reports at most.
const IMAGES: usize = 50;
/// For a thousand transactions on a busy disk.
const PATIENCE: Duration = Duration::from_secs(300);
/// The bar: 15 MiB.
const MEMORY_KIB: u64 = 15 << 10;

fn name(number: usize) -> String {
    format!("n{number:04}")
}

/// As a kubelet registers it: 10 KiB, most of it images.
fn fat(number: usize) -> Node {
    let image = |image: usize| {
        let repository = format!("registry.example/team-{image}/some-service-with-a-name");
        let digest = format!("{repository}@sha256:{:064x}", image * 7919);
        ContainerImage {
            names: Some(vec![digest, format!("{repository}:v1.{image}.0")]),
            size_bytes: Some(1 << 27),
        }
    };
    let condition = |kind: &str| NodeCondition {
        type_: kind.to_owned(),
        status: "False".to_owned(),
        reason: Some("KubeletHasNoTrouble".to_owned()),
        message: Some("kubelet has sufficient of everything available".to_owned()),
        ..NodeCondition::default()
    };
    let taint = Taint {
        key: "node.cloudprovider.kubernetes.io/uninitialized".to_owned(),
        effect: "NoSchedule".to_owned(),
        ..Taint::default()
    };
    Node {
        metadata: ObjectMeta { name: Some(name(number)), ..ObjectMeta::default() },
        spec: Some(NodeSpec { taints: Some(vec![taint]), ..NodeSpec::default() }),
        status: Some(NodeStatus {
            images: Some((0..IMAGES).map(image).collect()),
            conditions: Some(["MemoryPressure", "DiskPressure", "PIDPressure"].map(condition).into()),
            node_info: Some(NodeSystemInfo {
                kernel_version: "6.18.0".to_owned(),
                ..NodeSystemInfo::default()
            }),
            ..NodeStatus::default()
        }),
    }
}

fn know(tenant: &Tenant, numbers: impl Iterator<Item = usize>) {
    let known: Vec<_> = numbers.map(|number| serde_json::json!({"name": name(number)})).collect();
    berth::files::write_atomic(&tenant.snapshot(), &serde_json::to_vec(&known).unwrap(), user()).unwrap();
}

async fn register(nodes: &Api<Node>, numbers: impl Iterator<Item = usize>) {
    let create = |number| async move { nodes.create(&PostParams::default(), &fat(number)).await.map(drop) };
    stream::iter(numbers)
        .map(create)
        .buffer_unordered(8)
        .for_each(|created| async { created.unwrap() })
        .await;
}

type Told = watcher::Event<PartialObjectMeta<Node>>;

/// Changes of each Node since it began to look, as its watch tells them.
struct Changes {
    watch: BoxStream<'static, watcher::Result<Told>>,
    count: HashMap<String, u32>,
}

impl Changes {
    async fn of(server: &ApiServer) -> Self {
        let nodes = Api::<PartialObjectMeta<Node>>::all(server.admin());
        let mut watch = watcher(nodes, watcher::Config::default()).boxed();
        while !matches!(watch.next().await, Some(Ok(watcher::Event::InitDone))) {}
        Self { watch, count: HashMap::new() }
    }

    /// Follows until `node` has changed so often.
    async fn of_node(&mut self, node: &str, times: u32) {
        let follow = async {
            while self.count.get(node).is_none_or(|count| *count < times) {
                self.next().await;
            }
        };
        timeout(PATIENCE, follow).await.expect("it changes");
    }

    async fn of_all(&mut self, nodes: usize) {
        let follow = async {
            while self.count.len() < nodes {
                self.next().await;
            }
        };
        timeout(PATIENCE, follow).await.expect("all change");
    }

    /// One event; an error is a server that is away for a moment.
    async fn next(&mut self) {
        if let Some(Ok(watcher::Event::Apply(node))) = self.watch.next().await {
            *self.count.entry(node.metadata.name.unwrap()).or_default() += 1;
        }
    }
}

/// Answered lists of Nodes since the API server's start.
async fn lists(server: &ApiServer) -> u64 {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = server.admin().request_text(request).await.unwrap();
    let of_nodes = |line: &&str| {
        line.starts_with("apiserver_request_total{")
            && line.contains("resource=\"nodes\"")
            && line.contains("verb=\"LIST\"")
    };
    let count = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    text.lines().filter(of_nodes).map(count).sum()
}

/// Of a build without optimisation only what it has for itself: its code is four times the size.
fn memory_kib(pid: u32) -> u64 {
    let what = if cfg!(debug_assertions) { "Pss_Anon:" } else { "Pss:" };
    let rollup = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("smaps_rollup")).unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix(what)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A pass over all Nodes begins with each change of the snapshot, and one that registers last is looked at last: once it is in line,
/// everything that was to be sent was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_nodes_cost_one_patch_each_and_nothing_afterwards() {
    let tenant = Tenant::start().await;
    let nodes = tenant.nodes();
    register(&nodes, 0..NODES).await;
    know(&tenant, 0..NODES);
    let mut changes = Changes::of(&tenant.api).await;
    let controller = tenant.controller().await;
    changes.of_all(NODES).await;

    // Everything is looked at again, and found in line. The last to come changes twice: it is registered, and patched.
    let before = lists(&tenant.api).await;
    know(&tenant, 0..=NODES);
    register(&nodes, NODES..=NODES).await;
    changes.of_node(&name(NODES), 2).await;
    assert_eq!(lists(&tenant.api).await, before, "the watch is enough");
    let often: Vec<_> = changes.count.iter().filter(|(_, count)| **count > 1).collect();
    assert_eq!(often, [(&name(NODES), &2)], "one patch for each");

    // A new API server has it list anew; what is in line needs nothing.
    let memory = memory_kib(controller.pid());
    let tenant = tenant.with_another_api_server().await;
    let mut changes = Changes::of(&tenant.api).await;
    know(&tenant, 0..NODES + 2);
    register(&nodes, NODES + 1..NODES + 2).await;
    changes.of_node(&name(NODES + 1), 2).await;
    assert_eq!(changes.count, HashMap::from([(name(NODES + 1), 2)]));
    assert!(memory < MEMORY_KIB, "{memory} KiB, and {} after a list anew", memory_kib(controller.pid()));
}
