//! The policy of the configuration on the real components: obeyed, shown, and changed without restarting anything (C7, G2).

mod common;

use berth_actors::status::{ChainState, ChildState, TreeStatus};
use common::{Dev, Home, child, host, pids, tenant};
use rustix::process::Signal;
use std::collections::BTreeMap;

const RESTARTS_WITH_KINE: &str = r#"
[supervision.cluster.kube-apiserver]
ride_through = { kine = "restart" }
[supervision.cluster.cloud-controller-manager]
restart = "transient"
"#;

fn is_ready(status: &TreeStatus) -> bool {
    status.tenants.iter().any(|chain| chain.name == "web" && chain.state == ChainState::Ready)
}

fn web(status: &TreeStatus) -> BTreeMap<String, u32> {
    pids(tenant(status, "web")).into_iter().collect()
}

/// Kills kine; returns whose process is another one once all are ready again.
async fn changed_by_death_of_kine(dev: &Dev<'_>) -> Vec<String> {
    let before = web(&dev.until("the cluster to be ready", is_ready).await);
    host::signal(before["kine"], Signal::KILL);
    let replaced = |status: &TreeStatus| is_ready(status) && web(status)["kine"] != before["kine"];
    let after = web(&dev.until("kine to be replaced", replaced).await);
    before.keys().filter(|name| before[*name] != after[*name]).cloned().collect()
}

#[tokio::test]
async fn the_policy_of_the_configuration_is_obeyed_and_a_changed_one_restarts_nothing() {
    let home = Home::new();
    let up = home.up(&home.config(RESTARTS_WITH_KINE));
    up.until("kcp to be served", |status| status.front.target.is_some()).await;
    home.ok(&["cluster", "create", "web"]);
    assert_eq!(
        changed_by_death_of_kine(&up).await,
        ["kine", "kube-apiserver", "kube-controller-manager"],
        "the API server restarts with kine, the controller manager with the API server"
    );

    let status = up.until("the cluster to be ready", is_ready).await;
    host::signal(web(&status)["cloud-controller-manager"], Signal::TERM);
    let done = |status: &TreeStatus| tenant(status, "web").state == ChainState::Done;
    let status = up.until("the clean exit to be taken as one", done).await;
    let ccm = child(tenant(&status, "web"), "cloud-controller-manager");
    assert_eq!((ccm.state, ccm.restarts), (ChildState::Done, 0));
    let shown = home.ok(&["cluster", "status", "web"]);
    assert!(shown.contains("done: cloud-controller-manager: exit code 0"), "{shown}");
    assert_eq!(home.ok(&["retry", "web"]), "web is ready again\n");

    let before = web(&up.until("the cluster to be ready", is_ready).await);
    up.kill();
    let up = home.up(&home.config(""));
    let after = web(&up.until("the next daemon to have adopted it", is_ready).await);
    assert_eq!(after, before, "a policy is no part of what a process is started with");
    assert_eq!(changed_by_death_of_kine(&up).await, ["kine"]);
    home.ok(&["down"]);
    assert!(up.ended().success());
    assert_eq!(host::processes_below(&home.state()), []);
}
