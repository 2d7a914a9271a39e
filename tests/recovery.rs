//! Deaths under a running system: which processes change, which stay, and that all are ready again (G2, A1).

mod common;

use berth_actors::status::{ChainState, ChainStatus, TreeStatus};
use common::{Dev, Home, all_ready, api, child, host, pids, tenant};
use rustix::process::Signal;
use std::collections::BTreeMap;

fn by_name(chain: &ChainStatus) -> BTreeMap<String, u32> {
    pids(chain).into_iter().collect()
}

fn demo(status: &TreeStatus) -> BTreeMap<String, u32> {
    by_name(tenant(status, "demo"))
}

/// Kills one component of demo and returns the names whose process is another one once all are ready again.
async fn changed_by_death_of(dev: &Dev<'_>, component: &str) -> Vec<String> {
    let before = dev.ready().await;
    let victim = demo(&before)[component];
    host::signal(victim, Signal::KILL);
    let replaced = |status: &TreeStatus| {
        all_ready(status) && demo(status).get(component).is_some_and(|pid| *pid != victim)
    };
    let after = dev.until(&format!("{component} to be replaced"), replaced).await;
    let (before, after) = (demo(&before), demo(&after));
    before.keys().filter(|name| before[*name] != after[*name]).cloned().collect()
}

#[tokio::test]
async fn each_death_costs_the_tenant_only_what_must_restart_with_it() {
    let home = Home::new();
    let dev = home.dev(&[]);
    dev.ready().await;
    let kubeconfig = home.layout().cluster("demo").join("kubeconfig");
    let maps = api::config_maps(api::client(&kubeconfig, None).await, "default");
    api::create_config_map(&maps, "acknowledged", "yes").await;

    assert_eq!(changed_by_death_of(&dev, "postgres").await, ["kine", "postgres"]);
    assert_eq!(changed_by_death_of(&dev, "kine").await, ["kine"]);
    assert_eq!(
        changed_by_death_of(&dev, "kube-apiserver").await,
        ["kube-apiserver", "kube-controller-manager"]
    );
    assert_eq!(changed_by_death_of(&dev, "kube-controller-manager").await, ["kube-controller-manager"]);
    assert_eq!(changed_by_death_of(&dev, "openbao").await, ["openbao"]);
    assert_eq!(changed_by_death_of(&dev, "cloud-controller-manager").await, ["cloud-controller-manager"]);

    assert_eq!(api::read_config_map(&maps, "acknowledged").await, "yes");
    assert!(dev.stop().success());
    assert_eq!(host::processes_below(&home.state()), []);
}

#[tokio::test]
async fn a_dead_kcp_comes_back_behind_the_same_front() {
    let home = Home::new();
    let dev = home.dev(&[]);
    let status = dev.ready().await;
    let victim = child(&status.slots[0], "kcp").pid.unwrap();
    host::signal(victim, Signal::KILL);
    let back = |status: &TreeStatus| {
        all_ready(status) && by_name(&status.slots[0]).get("kcp").is_some_and(|pid| *pid != victim)
    };
    let status = dev.until("kcp to be replaced", back).await;
    let front = status.front.target.expect("the front follows the new kcp");
    assert_eq!(Some(front.address), child(&status.slots[0], "kcp").address);
    let kubeconfig = home.layout().kcp().join("admin.kubeconfig");
    let maps = api::config_maps(api::client(&kubeconfig, Some("system:admin")).await, "default");
    api::create_config_map(&maps, "after-the-crash", "yes").await;
    assert!(dev.stop().success());
}

#[tokio::test]
async fn kcp_rides_through_the_deaths_of_its_kine_and_of_the_store_below() {
    let home = Home::new();
    let dev = home.dev(&[]);
    let kcp = |status: &TreeStatus| by_name(&status.slots[0]);
    let all_ready = |status: &TreeStatus| all_ready(status) && status.slots[0].state == ChainState::Ready;
    let before = dev.until("the slot to be ready", all_ready).await;
    let kine = kcp(&before)["kine"];
    host::signal(kine, Signal::KILL);
    let replaced =
        |status: &TreeStatus| all_ready(status) && kcp(status).get("kine").is_some_and(|pid| *pid != kine);
    let after = dev.until("the kine of slot a to be replaced", replaced).await;
    assert_eq!(kcp(&after)["kcp"], kcp(&before)["kcp"]);
    assert_eq!(
        child(&after.slots[0], "kine").address,
        child(&before.slots[0], "kine").address,
        "kcp knows it by that"
    );

    let store = |status: &TreeStatus| by_name(status.store.as_ref().unwrap());
    let postgres = store(&after)["postgres"];
    host::signal(postgres, Signal::KILL);
    let replaced = |status: &TreeStatus| {
        all_ready(status)
            && store(status).get("postgres").is_some_and(|pid| *pid != postgres)
            && kcp(status).get("kine").is_some_and(|pid| *pid != kcp(&after)["kine"])
    };
    let status = dev.until("the store and the kine on it to be replaced", replaced).await;
    assert_eq!(
        kcp(&status)["kcp"],
        kcp(&after)["kcp"],
        "no kine outlives its database, and kcp outlives both"
    );
    let kubeconfig = home.layout().kcp().join("admin.kubeconfig");
    let maps = api::config_maps(api::client(&kubeconfig, Some("system:admin")).await, "default");
    api::create_config_map(&maps, "after-both", "yes").await;
    assert!(dev.stop().success());
}
