//! A tenant on k3s, end to end: the operator's own where `BERTH_K3S` names one, else the labelled stand-in.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that panics has failed; its files need not outlive a crash; it says what it ran on"
)]

mod common;

use berth::tenant::postgres::databases;
use berth_actors::status::{ChainState, ChildState, TreeStatus};
use common::{Dev, Home, api, child, host, pids, tenant};
use k8s_openapi::api::core::v1::{Namespace, Node, Secret};
use kube::api::{Api, ObjectMeta, PostParams};
use kube::config::Kubeconfig;
use kube::runtime::wait::await_condition;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const CHAIN: [&str; 5] = ["postgres", "openbao", "kine", "k3s", "cloud-controller-manager"];
const PATIENCE: Duration = Duration::from_mins(3);

/// The operator's k3s, or a copy of this very program under the stand-in's name, where the components' account reaches it.
fn k3s(home: &Home) -> (PathBuf, bool) {
    if let Some(real) = std::env::var_os("BERTH_K3S") {
        return (real.into(), false);
    }
    let path = home.state().with_file_name(berth_stand_ins::k3s::NAME);
    std::fs::copy(env!("CARGO_BIN_EXE_berth"), &path).unwrap();
    (path, true)
}

/// A daemon without kcp: only clusters matter here.
fn up<'a>(home: &'a Home, k3s: Option<&Path>) -> Dev<'a> {
    let components = berth::testing::components();
    let mut text = "[kcp]\nenabled = false\n[components]\n".to_owned();
    for (name, path) in [
        ("postgres", &components.postgres_bin),
        ("openbao", &components.openbao.path),
        ("kine", &components.kine.path),
        ("kube_apiserver", &components.kube_apiserver.path),
        ("kube_controller_manager", &components.kube_controller_manager.path),
    ] {
        writeln!(text, "{name} = \"{}\"", path.display()).unwrap();
    }
    if let Some(path) = k3s {
        writeln!(text, "k3s = \"{}\"", path.display()).unwrap();
    }
    let file = home.state().with_file_name("berth.toml");
    std::fs::write(&file, text).unwrap();
    home.run(&["up", "--config", file.to_str().unwrap()], &[])
}

fn is_ready(status: &TreeStatus) -> bool {
    status.tenants.iter().any(|chain| chain.name == "web" && chain.state == ChainState::Ready)
}

fn web(status: &TreeStatus) -> BTreeMap<String, u32> {
    pids(tenant(status, "web")).into_iter().collect()
}

#[tokio::test]
async fn a_cluster_on_k3s_lives_as_any_other_and_leaves_nothing() {
    let home = Home::new();
    let (program, is_stand_in) = k3s(&home);
    let dev = up(&home, Some(&program));
    dev.until("the daemon to answer", |_| true).await;
    home.ok(&["cluster", "create", "web"]);

    let status = dev.until("web to be ready", is_ready).await;
    let names: Vec<_> = tenant(&status, "web").children.iter().map(|child| child.name.as_str()).collect();
    assert_eq!(names, CHAIN);
    assert_eq!(child(tenant(&status, "web"), "k3s").stand_in.is_some(), is_stand_in);
    assert_eq!(home.ok(&["status"]).contains("stand-in"), is_stand_in);
    assert!(home.ok(&["cluster", "list"]).lines().any(|line| line.contains("web") && line.contains("k3s")));

    let kubeconfig = reachable_kubeconfig(&home);
    let client = api::client(&kubeconfig, None).await;
    assert!(Api::<Namespace>::all(client.clone()).get("kube-system").await.is_ok());
    a_secret_is_sealed(&home, client.clone()).await;
    a_node_gets_its_provider_id(&home, client.clone()).await;
    no_token_on_any_command_line(&home);

    let before = web(&status);
    host::signal(before["k3s"], Signal::KILL);
    let recovered = |status: &TreeStatus| {
        is_ready(status) && web(status).get("k3s").is_some_and(|pid| *pid != before["k3s"])
    };
    let after = web(&dev.until("k3s to be replaced", recovered).await);
    let changed: Vec<_> = CHAIN.into_iter().filter(|name| before[*name] != after[*name]).collect();
    assert_eq!(changed, ["k3s"], "the rest rode through");
    assert!(Api::<Secret>::namespaced(client, "default").get("s1").await.is_ok(), "its data are there");

    let identity = std::fs::read_to_string(home.layout().cluster("web").join("identity.json")).unwrap();
    let guarded = ["k3s-server-ca", "k3s-client-ca"].iter().all(|name| identity.contains(name));
    assert!(guarded, "the guard knows the CAs k3s made: {identity}");

    // A daemon that has no k3s starts what it can, says why not the rest, and can still delete it.
    home.ok(&["down"]);
    assert!(dev.ended().success());
    let dev = up(&home, None);
    let given_up = |status: &TreeStatus| {
        status.tenants.iter().any(|chain| chain.name == "web" && chain.state == ChainState::Degraded)
    };
    let status = dev.until("web to be given up", given_up).await;
    let reason = child(tenant(&status, "web"), "k3s").last_failure.clone().unwrap();
    assert!(reason.contains("--k3s PATH"), "{reason}");
    assert_eq!(child(tenant(&status, "web"), "kine").state, ChildState::Ready);

    home.ok(&["cluster", "delete", "web", "--yes"]);
    home.ok(&["down"]);
    assert!(dev.ended().success());
    assert_eq!(host::processes_below(&home.state()), []);
    let left: Vec<_> = std::fs::read_dir(home.layout().clusters()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    let leases = std::fs::read_to_string(home.state().join("ports.json")).unwrap();
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&leases).unwrap(),
        serde_json::json!({"leases": {}})
    );
    let on =
        if is_stand_in { "its stand-in; BERTH_K3S=PATH runs this test on a real one" } else { "a real k3s" };
    // Past the capture of a test's output: what a green line stands for is not to be missed.
    std::io::stderr().write_all(format!("k3s: this test ran on {on}\n").as_bytes()).unwrap();
}

/// Its names are the cluster's and the administrator's, and it is the same file that `berth cluster kubeconfig` prints.
fn reachable_kubeconfig(home: &Home) -> PathBuf {
    let path = home.layout().cluster("web").join("kubeconfig");
    let text = home.ok(&["cluster", "kubeconfig", "web"]);
    assert_eq!(text, std::fs::read_to_string(&path).unwrap());
    let config = Kubeconfig::from_yaml(&text).unwrap();
    assert_eq!(config.current_context.as_deref(), Some("web"));
    assert_eq!(config.auth_infos[0].name, "admin");
    let leases: serde_json::Value =
        serde_json::from_slice(&std::fs::read(home.state().join("ports.json")).unwrap()).unwrap();
    let block = &leases["leases"]["web"];
    assert_eq!(block["count"], 4);
    let server = format!("https://127.0.0.1:{}", block["first"]);
    assert_eq!(config.clusters[0].cluster.as_ref().unwrap().server, Some(server));
    path
}

async fn a_secret_is_sealed(home: &Home, client: kube::Client) {
    let mut secret = Secret::default();
    secret.metadata.name = Some("s1".to_owned());
    secret.string_data = Some([("password".to_owned(), "never-in-clear-text".to_owned())].into());
    Api::<Secret>::namespaced(client, "default").create(&PostParams::default(), &secret).await.unwrap();
    let database = databases::connect(&home.layout().sockets("web").unwrap(), "kine", "kine").await.unwrap();
    let newest =
        "SELECT value FROM kine WHERE name = '/registry/secrets/default/s1' ORDER BY id DESC LIMIT 1";
    let stored: Vec<u8> = database.query_one(newest, &[]).await.unwrap().get(0);
    assert!(stored.starts_with(b"k8s:enc:"), "{:?}", &stored[..24]);
}

async fn a_node_gets_its_provider_id(home: &Home, client: kube::Client) {
    home.ok(&["node", "add", "web", "worker-1"]);
    let nodes: Api<Node> = Api::all(client);
    let metadata = ObjectMeta { name: Some("worker-1".to_owned()), ..ObjectMeta::default() };
    nodes.create(&PostParams::default(), &Node { metadata, ..Node::default() }).await.unwrap();
    let named = |node: Option<&Node>| {
        node.and_then(|node| node.spec.as_ref()?.provider_id.as_deref()) == Some("socialweb://web/worker-1")
    };
    tokio::time::timeout(PATIENCE, await_condition(nodes, "worker-1", named)).await.unwrap().unwrap();
}

fn no_token_on_any_command_line(home: &Home) {
    let token = std::fs::read_to_string(home.layout().cluster("web").join("k3s-token")).unwrap();
    for (pid, line) in host::processes_below(&home.state()) {
        assert!(!line.contains(token.trim()), "pid {pid} has the token on its command line");
    }
}
