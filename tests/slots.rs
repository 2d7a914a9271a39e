//! A slot of kcp: the canary that finds stalled watches, chosen ports, a dead kcp and a dead kine, another kcp, another
//! certificate.

#![allow(clippy::unwrap_used, reason = "a test that panics has failed, in its helpers too")]
#![allow(clippy::disallowed_methods, reason = "what a test reads nobody planted")]

mod common;

use berth_actors::identity::SlotName;
use berth_actors::status::{CanaryState, ChildState, TreeStatus};
use common::release::kcp_calling_itself;
use common::{Home, api, child, host};
use rustix::process::Signal;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

/// The serving slot has a canary that has come back.
fn seen(status: &TreeStatus) -> bool {
    status.canary.as_ref().is_some_and(|canary| matches!(canary.state, CanaryState::Seen { .. }))
}

#[tokio::test]
async fn stalled_watches_are_found_by_a_write_and_cured_by_a_new_kine_on_the_old_port() {
    let home = Home::new();
    let config = home.config("[kcp]\ncanary_interval = \"300ms\"\ncanary_deadline = \"3s\"\n");
    let silence = home.state().with_file_name("silence");
    let up = home.run(
        &["up", "--config", config.to_str().unwrap()],
        &[("KCP_STANDIN_SILENT_WATCHES", silence.to_str().unwrap())],
    );
    let before = up.until("the canary to be seen", seen).await;
    let (kine, kcp) = (child(&before.slots[0], "kine").clone(), child(&before.slots[0], "kcp").clone());

    std::fs::File::create(&silence).unwrap();
    let replaced =
        |status: &TreeStatus| child(&status.slots[0], "kine").pid.is_some_and(|pid| Some(pid) != kine.pid);
    up.until("another kine", replaced).await;
    std::fs::remove_file(&silence).unwrap();
    let after = up.until("the canary to be seen again", |status| replaced(status) && seen(status)).await;
    assert_eq!(child(&after.slots[0], "kine").address, kine.address);
    assert_eq!(child(&after.slots[0], "kcp").pid, kcp.pid, "kcp rides through");
    let events = home.ok(&["events"]);
    assert!(events.contains("its watches have stalled (2 writes in a row"), "{events}");
    assert!(home.ok(&["status"]).contains("canary"));
    home.ok(&["down"]);
    assert!(up.ended().success());
}

#[tokio::test]
async fn slots_on_chosen_ports_are_handed_over_and_a_stranger_on_one_is_named() {
    let home = Home::new();
    let free = || TcpListener::bind("127.0.0.1:0").unwrap();
    let (a, b) = (free(), free());
    let [port_a, port_b] = [&a, &b].map(|port| port.local_addr().unwrap().port());
    drop(a);
    let config = home.config(&format!("[kcp]\nports = [{port_a}, {port_b}]\n"));
    let up = home.up(&config);
    let status = up.until("kcp to be served", |status| status.front.target.is_some()).await;
    assert_eq!(child(&status.slots[0], "kcp").address.unwrap().port(), port_a);

    let handover = home.run_in_background(&["kcp", "handover"]);
    let taken = "is taken by";
    let stuck = up
        .until("the stranger to be named", |status| {
            let failure = status.slots[1].children.last().and_then(|kcp| kcp.last_failure.clone());
            failure.is_some_and(|failure| failure.contains(taken))
        })
        .await;
    let failure = child(&stuck.slots[1], "kcp").last_failure.clone().unwrap();
    assert!(failure.contains(&format!("(pid {})", std::process::id())), "{failure}");
    drop(b);
    assert!(handover.ended().success());
    let status = up.until("slot b to serve", |status| status.front.target.is_some()).await;
    assert_eq!(child(&status.slots[1], "kcp").address.unwrap().port(), port_b);
    home.ok(&["down"]);
    assert!(up.ended().success());
}

/// Between handovers: a dead kine comes back on its port under a kcp that rides through; a dead kcp comes back in place.
#[tokio::test]
async fn a_dead_kine_keeps_its_port_and_a_dead_kcp_is_started_again_in_its_slot() {
    let home = Home::new();
    let up = home.up(&home.config(""));
    let before = up.until("kcp to be served", |status| status.front.target.is_some()).await;
    let (kine, kcp) = (child(&before.slots[0], "kine").clone(), child(&before.slots[0], "kcp").clone());
    host::signal(kine.pid.unwrap(), Signal::KILL);
    let settled = |status: &TreeStatus| {
        let children = &status.slots[0].children;
        children.iter().all(|child| child.state == ChildState::Ready) && status.front.target.is_some()
    };
    let after = up
        .until("another kine", |status| child(&status.slots[0], "kine").pid != kine.pid && settled(status))
        .await;
    assert_eq!(child(&after.slots[0], "kine").address, kine.address);
    assert_eq!(child(&after.slots[0], "kcp").pid, kcp.pid);

    host::signal(kcp.pid.unwrap(), Signal::KILL);
    let certificate = std::fs::read(home.layout().kcp_shared().join("apiserver.crt")).unwrap();
    up.until("the front to park", |status| status.front.target.is_none()).await;
    let https = berth::https::Https::new(&certificate, None).unwrap();
    // It waits in the front until the slot serves again.
    let (status, _) =
        https.get(&format!("https://{}/readyz", home.front), Duration::from_secs(60)).await.unwrap();
    assert_eq!(status, 200);
    let after = up.until("kcp to be served again", settled).await;
    assert_ne!(child(&after.slots[0], "kcp").pid, kcp.pid);
    let consumer = home.ok(&["kcp", "kubeconfig"]);
    assert!(consumer.contains("shard-base") && !consumer.contains("kcp-admin"), "{consumer}");
    home.ok(&["down"]);
    assert!(up.ended().success());
}

#[tokio::test]
async fn an_upgrade_is_a_handover_to_another_kcp_that_stays_and_an_older_one_is_refused() {
    let home = Home::new();
    let config = home.config("");
    let up = home.up(&config);
    let serves = |status: &TreeStatus| status.front.target.is_some();
    up.until("kcp to be served", serves).await;
    let upgrade = |path: &Path| home.berth(&["kcp", "upgrade", "--path", path.to_str().unwrap()]);
    let newer = kcp_calling_itself(&home, "v1.36.0+kcp-v0.34.0-stand-in", true);
    let done = upgrade(&newer);
    assert!(done.status.success(), "{}\n{}", String::from_utf8_lossy(&done.stderr), up.output());
    let status = up.until("slot b to serve", serves).await;
    assert_eq!(status.active_slot, Some(SlotName::B));
    let chosen =
        |status: &TreeStatus| status.upkeep.as_ref().and_then(|upkeep| upkeep.chosen_kcp.clone()).unwrap();
    assert!(chosen(&status).contains("v0.34.0"), "{status:?}");
    assert!(home.ok(&["config", "show", "--config", config.to_str().unwrap()]).contains("# kcp is "));

    let older = kcp_calling_itself(&home, "v1.36.0+kcp-v0.33.9-stand-in", true);
    let refused = upgrade(&older);
    assert_eq!(refused.status.code(), Some(5));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("v0.33.9-stand-in is older than v1.36.0+kcp-v0.34.0-stand-in"), "{said}");
    let missing = home.berth(&["kcp", "upgrade", "--version", "v0.99.0"]);
    assert_eq!(missing.status.code(), Some(4), "{}", String::from_utf8_lossy(&missing.stderr));

    let broken = kcp_calling_itself(&home, "v1.36.0+kcp-v0.35.0-stand-in", false);
    assert_eq!(upgrade(&broken).status.code(), Some(1));
    let before = up.until("slot b to serve as before", serves).await;
    assert!(chosen(&before).contains("v0.34.0"), "{before:?}");
    assert_eq!(before.active_slot, Some(SlotName::B));

    // The next daemon knows what runs: nothing is restarted for the configuration's sake.
    let pid = child(&before.slots[1], "kcp").pid;
    up.kill();
    let up = home.up(&config);
    let after = up.until("kcp to be served", serves).await;
    assert_eq!(child(&after.slots[1], "kcp").pid, pid);
    home.ok(&["down"]);
    assert!(up.ended().success());
}

#[tokio::test]
async fn a_rotation_renews_the_certificate_and_clients_that_were_told_before_it_notice_nothing() {
    let home = Home::new();
    let up = home.up(&home.config(""));
    up.until("kcp to be served", |status| status.front.target.is_some()).await;
    let shared = home.layout().kcp_shared().join("apiserver.crt");
    let first = std::fs::read(&shared).unwrap();
    let lasts = home.ok(&["status"]);
    assert!(
        lasts.contains("kcp's certificate is 0 days old and ends on 2"),
        "not only once it is due: {lasts}"
    );
    let told = home.berth(&["kcp", "rotate-certs"]);
    assert_eq!(told.status.code(), Some(5), "no client can know of the authority yet");
    assert!(String::from_utf8_lossy(&told.stderr).contains("hand it out"), "{told:?}");
    assert_eq!(std::fs::read(&shared).unwrap(), first);

    let kubeconfig = home.state().with_file_name("clients.kubeconfig");
    home.ok(&["kcp", "kubeconfig", "--output", kubeconfig.to_str().unwrap()]);
    let maps = || async { api::config_maps(api::client(&kubeconfig, Some("system:admin")).await, "default") };
    let held = maps().await;
    api::create_config_map(&held, "kept", "yes").await;
    for slot in [SlotName::B, SlotName::A] {
        let before = std::fs::read(&shared).unwrap();
        home.ok(&["kcp", "rotate-certs"]);
        let status = up.until("kcp to be served", |status| status.front.target.is_some()).await;
        assert_eq!(status.active_slot, Some(slot));
        assert_ne!(std::fs::read(&shared).unwrap(), before);
        assert_eq!(api::read_config_map(&maps().await, "kept").await, "yes");
        assert_eq!(api::read_config_map(&held, "kept").await, "yes");
    }
    home.ok(&["down"]);
    assert!(up.ended().success());
}
