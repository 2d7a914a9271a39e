//! The whole system, end to end, on the real components: bring-up, handover, tenants, second run, stop.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that panics has failed; the files it writes need not outlive a crash"
)]

mod common;

use berth_actors::handover::Wish;
use berth_actors::identity::SlotName;
use berth_actors::status::{ChainState, HandoverOutcome};
use common::{Home, all_ready, api, child, host, pids, tenant};
use k8s_openapi::api::core::v1::{Namespace, Node};
use kube::api::{Api, ListParams, PostParams};
use std::net::TcpListener;

/// Six components in the order they start in.
const TENANT: [&str; 6] =
    ["postgres", "openbao", "kine", "kube-apiserver", "kube-controller-manager", "cloud-controller-manager"];

#[tokio::test]
async fn everything_comes_up_in_order_serves_and_leaves_nothing_behind() {
    let home = Home::new();
    let dev = home.dev(&[]);
    let status = dev.ready().await;

    let demo = tenant(&status, "demo");
    let names: Vec<_> = demo.children.iter().map(|child| child.name.as_str()).collect();
    assert_eq!(names, TENANT);
    let births: Vec<_> = pids(demo).into_iter().map(|(_, pid)| host::start_time(pid)).collect();
    assert!(births.is_sorted(), "they did not start in order: {births:?}");
    let kcp = child(&status.slots[0], "kcp");
    assert!(kcp.stand_in.as_ref().is_some_and(|why| why.contains("--kcp")), "{kcp:?}");
    assert!(home.ok(&["status"]).contains("stand-in"));

    no_secret_on_any_command_line(&home);

    let kubeconfig = home.layout().cluster("demo").join("kubeconfig");
    let namespaces: Api<Namespace> = Api::all(api::client(&kubeconfig, None).await);
    let found = namespaces.list(&ListParams::default()).await.unwrap();
    assert!(found.iter().any(|namespace| namespace.metadata.name.as_deref() == Some("kube-system")));

    let downs = home.downs().await;
    host::signal(dev.pid(), rustix::process::Signal::INT);
    let downs = downs.await.unwrap();
    let of_demo: Vec<_> = downs.iter().filter_map(|id| id.strip_prefix("demo/")).collect();
    let reverse: Vec<_> = TENANT.into_iter().rev().collect();
    assert_eq!(of_demo, reverse, "{downs:?}");
    let at = |id: &str| downs.iter().position(|down| down == id);
    assert!(at("demo/postgres") < at("slot-a/kcp") && at("slot-a/kcp") < at("slot-a/kine"), "{downs:?}");
    assert!(dev.ended().success());
    assert_eq!(host::processes_below(&home.state()), []);
    TcpListener::bind(home.front).expect("the front's port is free again");
}

/// Every secret Berth knows of, looked for on the command line of every process it runs.
fn no_secret_on_any_command_line(home: &Home) {
    let data = home.layout().cluster("demo");
    let mut secrets = Vec::new();
    let mut dirs = vec![data.clone(), home.layout().kcp()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(dir).unwrap().filter_map(Result::ok) {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() && !["pg", "log"].contains(&name.as_str()) {
                dirs.push(path);
            } else if name.contains("password") || name.ends_with("token") {
                secrets.push(std::fs::read_to_string(&path).unwrap_or_default().trim().to_owned());
            } else if name == "admin.kubeconfig" {
                let text = std::fs::read_to_string(&path).unwrap();
                secrets.extend(
                    text.lines().filter_map(|line| Some(line.trim().strip_prefix("token: ")?.to_owned())),
                );
            }
        }
    }
    secrets.retain(|secret| secret.len() > 7);
    assert!(secrets.len() >= 2, "the OpenBao password and a kcp token were to be found: {}", secrets.len());
    let lines = host::processes_below(&home.state());
    assert!(lines.len() > 10, "{lines:?}");
    for (pid, line) in lines {
        let leaked = secrets.iter().any(|secret| line.contains(secret.as_str()));
        assert!(!leaked && !line.contains("password="), "pid {pid} has a secret on its command line");
    }
}

#[tokio::test]
async fn a_handover_ends_on_the_other_slot_with_the_data_of_the_first() {
    let home = Home::new();
    let dev = home.dev(&[]);
    dev.ready().await;
    let kubeconfig = home.layout().kcp().join("admin.kubeconfig");
    let root_maps = |client| api::config_maps(client, "default");
    let before = root_maps(api::client(&kubeconfig, Some("system:admin")).await);
    api::create_config_map(&before, "written-before", "yes").await;

    let handover = home.client().handover(Wish::Plain).await.unwrap();
    assert_eq!(handover.outcome, HandoverOutcome::Done, "{handover:#?}\n{}", dev.output());
    assert_eq!((handover.from, handover.to), (SlotName::A, SlotName::B));

    let after = root_maps(api::client(&kubeconfig, Some("system:admin")).await);
    assert_eq!(api::read_config_map(&after, "written-before").await, "yes");
    assert_eq!(api::read_config_map(&before, "written-before").await, "yes");
    let status = dev.until("slot a to be down", |status| status.slots[0].state == ChainState::Down).await;
    assert_eq!(status.active_slot, Some(SlotName::B));
    assert_eq!(pids(&status.slots[0]), []);

    let back = home.client().handover(Wish::Plain).await.unwrap();
    assert_eq!((back.outcome, back.to), (HandoverOutcome::Done, SlotName::A), "{}", dev.output());
    assert!(dev.stop().success());
}

#[tokio::test]
async fn a_slot_that_cannot_start_is_rolled_back_and_the_old_one_never_stops_serving() {
    let home = Home::new();
    let dev = home.dev(&[]);
    let status = dev.ready().await;
    let old = pids(&status.slots[0]);
    let shared = home.layout().kcp_shared().join("sa.key");
    let key = std::fs::read(&shared).unwrap();
    std::fs::write(&shared, "not a key").unwrap();
    let handover = home.client().handover(Wish::Plain).await.unwrap();
    let HandoverOutcome::RolledBack(reason) = &handover.outcome else { panic!("{handover:#?}") };
    assert!(reason.contains("sa.key"), "{reason}");
    let status = dev.ready().await;
    assert_eq!(pids(&status.slots[0]), old);
    std::fs::write(&shared, key).unwrap();
    assert!(dev.stop().success());
}

#[tokio::test]
async fn nodes_are_adopted_by_the_cloud_controller_manager() {
    let home = Home::new();
    let dev = home.dev(&[]);
    dev.ready().await;
    let kubeconfig = home.layout().cluster("demo").join("kubeconfig");
    let nodes: Api<Node> = Api::all(api::client(&kubeconfig, None).await);
    let node: Node = serde_json::from_value(serde_json::json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker-1"},
        "spec": {"taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}]},
    }))
    .unwrap();
    nodes.create(&PostParams::default(), &node).await.unwrap();
    home.ok(&["node", "add", "demo", "worker-1"]);
    assert!(home.ok(&["node", "list", "demo"]).contains("worker-1"));

    let adopted = |node: Option<&Node>| {
        node.and_then(|node| node.spec.as_ref()).is_some_and(|spec| spec.provider_id.is_some())
    };
    let seen = kube::runtime::wait::await_condition(nodes.clone(), "worker-1", adopted);
    tokio::time::timeout(std::time::Duration::from_secs(60), seen).await.unwrap().unwrap();
    let node = nodes.get("worker-1").await.unwrap();
    let spec = node.spec.unwrap();
    assert_eq!(spec.provider_id.as_deref(), Some("socialweb://demo/worker-1"));
    assert_eq!(node.metadata.labels.unwrap()["node.socialweb.computer/cluster"], "demo");
    let taints = spec.taints.unwrap_or_default();
    assert!(!taints.iter().any(|taint| taint.key.ends_with("/uninitialized")), "{taints:?}");
    assert!(dev.stop().success());
}

#[tokio::test]
async fn a_second_run_finds_its_clusters_and_a_deleted_one_leaves_nothing() {
    let home = Home::new();
    let dev = home.dev(&[]);
    dev.ready().await;
    let kubeconfig = home.layout().cluster("demo").join("kubeconfig");
    let maps = api::config_maps(api::client(&kubeconfig, None).await, "default");
    api::create_config_map(&maps, "kept", "yes").await;
    home.ok(&["cluster", "create", "second"]);
    let listed = home.ok(&["cluster", "list"]);
    assert!(listed.contains("demo") && listed.contains("second"), "{listed}");
    home.ok(&["cluster", "delete", "second", "--yes"]);
    let second = home.layout().cluster("second");
    assert!(!second.exists() && !home.layout().run().join("second").exists());
    assert_eq!(host::processes_below(&second), []);
    assert!(!home.ok(&["cluster", "list"]).contains("second"));
    assert!(dev.stop().success());

    let dev = home.dev(&[]);
    dev.until("the second run", all_ready).await;
    let maps = api::config_maps(api::client(&kubeconfig, None).await, "default");
    assert_eq!(api::read_config_map(&maps, "kept").await, "yes");
    assert!(dev.stop().success());
}

#[tokio::test]
async fn a_new_slot_that_hangs_in_its_start_is_recognised_killed_and_started_once_more() {
    let home = Home::new();
    let dev = home.dev(&[("KCP_STANDIN_SLOT_B_HANG", "once")]);
    dev.ready().await;
    let handover = home.client().handover(Wish::Plain).await.unwrap();
    assert_eq!(handover.outcome, HandoverOutcome::Done, "{handover:#?}\n{}", dev.output());
    let status = dev.ready().await;
    let kcp = child(&status.slots[1], "kcp");
    assert_eq!(kcp.restarts, 1, "{kcp:?}");
    assert!(dev.stop().success());
}

/// `berth dev | head`, or a closed terminal.
#[tokio::test]
async fn a_reader_that_goes_away_does_not_keep_a_stop_from_ending_everything() {
    let home = Home::new();
    let dev = home.dev_unread();
    dev.ready().await;
    assert!(dev.stop().success());
    assert_eq!(host::processes_below(&home.state()), []);
}

#[tokio::test]
async fn the_daemon_of_a_configuration_file_runs_until_berth_down() {
    let home = Home::new();
    let components = berth::testing::components();
    let file = home.state().with_file_name("berth.toml");
    let text = format!(
        "[front]\nlisten = \"{}\"\n[components]\npostgres = {:?}\nopenbao = {:?}\nkine = {:?}\nkube_apiserver = {:?}\nkube_controller_manager = {:?}\n",
        home.front,
        components.postgres_bin,
        components.openbao.path,
        components.kine.path,
        components.kube_apiserver.path,
        components.kube_controller_manager.path,
    );
    std::fs::write(&file, text).unwrap();
    let up = home.run(&["up", "--config", file.to_str().unwrap()], &[]);
    up.until("kcp to be served", |status| status.front.target.is_some()).await;
    home.ok(&["cluster", "create", "web"]);
    home.ok(&["cluster", "stop", "web"]);
    home.ok(&["down"]);
    assert!(up.ended().success());
    assert_eq!(host::processes_below(&home.state()), []);

    let up = home.run(&["up", "--config", file.to_str().unwrap()], &[]);
    let status = up.until("kcp to be served", |status| status.front.target.is_some()).await;
    assert_eq!(tenant(&status, "web").state, ChainState::Down, "a stopped cluster stays stopped");
    home.ok(&["down"]);
    assert!(up.ended().success());
}
