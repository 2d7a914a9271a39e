//! A thousand Nodes: what they cost the API server, and the program.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking
#![allow(clippy::disallowed_methods, reason = "what a test reads nobody planted")]
#![allow(dead_code, reason = "it shares its tenant with the tests of a few Nodes")]

#[path = "../real_stack/mod.rs"]
mod real_stack;
mod tenant;

use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::{
    ContainerImage, Node, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, Taint,
};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::core::PartialObjectMeta;
use kube::runtime::{WatchStreamExt, watcher};
use real_stack::{ApiServer, user};
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::Duration;
use tenant::{LABEL, Tenant};
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

/// Resolves once so many Nodes have the label, which comes with the rest of the one patch.
async fn labelled(server: &ApiServer, wanted: usize) {
    let ours = watcher::Config::default().labels(&format!("{LABEL}=demo"));
    let nodes = Api::<PartialObjectMeta<Node>>::all(server.admin());
    let mut seen = HashSet::new();
    let mut changes = watcher(nodes, ours).applied_objects().boxed();
    while seen.len() < wanted {
        let node = changes.next().await.expect("a watch goes on").expect("the API server answers");
        seen.insert(node.metadata.name);
    }
}

/// Answered requests on Nodes of one verb since the API server's start; a watch is answered when it ends.
async fn requests(server: &ApiServer, verb: &str) -> u64 {
    let request = http::Request::get("/metrics").body(Vec::new()).unwrap();
    let text = server.admin().request_text(request).await.unwrap();
    let of_nodes = |line: &&str| {
        line.starts_with("apiserver_request_total{")
            && line.contains("resource=\"nodes\"")
            && line.contains(&format!("verb=\"{verb}\""))
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
    let controller = tenant.controller().await;
    timeout(PATIENCE, labelled(&tenant.api, NODES)).await.expect("all are patched");
    assert_eq!(requests(&tenant.api, "PATCH").await, NODES as u64, "one for each");

    // Everything is looked at again, and found in line.
    let lists = requests(&tenant.api, "LIST").await;
    know(&tenant, 0..=NODES);
    register(&nodes, NODES..=NODES).await;
    tenant.in_line(&name(NODES)).await;
    assert_eq!(requests(&tenant.api, "PATCH").await, NODES as u64 + 1, "one for the new one");
    // `in_line` asks for a list of its own.
    assert_eq!(requests(&tenant.api, "LIST").await, lists + 1);

    // After a new API server, whose counts begin anew, too: what is in line needs nothing.
    let memory = memory_kib(controller.pid());
    let tenant = tenant.with_another_api_server().await;
    know(&tenant, 0..NODES + 2);
    register(&nodes, NODES + 1..NODES + 2).await;
    tenant.in_line(&name(NODES + 1)).await;
    assert_eq!(requests(&tenant.api, "PATCH").await, 1);
    assert!(memory < MEMORY_KIB, "{memory} KiB, and {} after a list anew", memory_kib(controller.pid()));
}
