//! Handovers of a real daemon: killed in each phase, replaced in the middle, hung, and looked back on (K6, K7).

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that panics has failed; the files it writes need not outlive a crash"
)]

mod common;
#[path = "handover/wishes.rs"]
mod wishes;

use berth::{fault, https};
use berth_actors::handover::{Phase, Wish};
use berth_actors::identity::SlotName;
use berth_actors::status::{ChainState, HandoverOutcome, HandoverStatus, TreeStatus};
use common::{Dev, Home, api, child, host, pids};
use kube::api::{Api, DynamicObject};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// kcp alone: store, one slot, front.
struct Kcp {
    home: Home,
    config: PathBuf,
    armed: PathBuf,
}

impl Kcp {
    fn new() -> Self {
        let home = Home::new();
        let config = home.config("");
        let armed = config.with_file_name("fault");
        Self { home, config, armed }
    }

    fn daemon(&self, environment: &[(&str, &str)]) -> Dev<'_> {
        let fault = [(fault::ARMED_IN, self.armed.to_str().unwrap())];
        let environment: Vec<_> = environment.iter().copied().chain(fault).collect();
        self.home.run(&["up", "--config", self.config.to_str().unwrap()], &environment)
    }

    fn kubeconfig(&self) -> PathBuf {
        self.home.layout().kcp().join("admin.kubeconfig")
    }

    async fn written(&self) -> Api<DynamicObject> {
        let client = api::client(&self.kubeconfig(), Some("system:admin")).await;
        let maps = api::config_maps(client, "default");
        api::create_config_map(&maps, "acknowledged", "yes").await;
        maps
    }

    fn past(&self) -> Vec<HandoverStatus> {
        let text = self.home.ok(&["kcp", "history", "--json"]);
        serde_json::from_str::<berth_actors::status::HandoverHistory>(&text).unwrap().handovers
    }
}

/// One slot serves, the other one is down, and no handover is under way.
fn at_rest(status: &TreeStatus) -> bool {
    let state = |slot: SlotName| {
        let chain = status.slots.iter().find(|chain| chain.name == slot.chain());
        chain.map(|chain| chain.state)
    };
    let running = |handover: &HandoverStatus| handover.outcome == HandoverOutcome::Running;
    status.active_slot.is_some_and(|active| {
        state(active) == Some(ChainState::Ready)
            && state(active.other()) == Some(ChainState::Down)
            && status.front.target.as_ref().is_some_and(|target| target.slot == active)
    }) && !status.handover.as_ref().is_some_and(running)
}

fn kcp_processes(state: &Path) -> usize {
    let is_kcp = |line: &&(i32, String)| line.1.contains("--shard-base-url");
    host::processes_below(state).iter().filter(is_kcp).count()
}

/// The daemon dies right after `phase` was written; the next one is left to itself.
async fn killed_in(phase: Phase) {
    let kcp = Kcp::new();
    let dev = kcp.daemon(&[]);
    let before = dev.until("kcp to be served", at_rest).await;
    let maps = kcp.written().await;
    std::fs::write(&kcp.armed, format!("handover-{phase} 0 die")).unwrap();
    kcp.home.client().handover(Wish::Plain).await.unwrap_err();
    assert!(!dev.ended().success(), "it was killed");

    let dev = kcp.daemon(&[]);
    let status = dev.until("the handover to be gone on with", at_rest).await;
    let forward = phase >= Phase::Retargeted;
    let active = if forward { SlotName::B } else { SlotName::A };
    assert_eq!(status.active_slot, Some(active), "{phase}\n{}", dev.output());
    assert_eq!(kcp_processes(&kcp.home.state()), 1, "{phase}");
    if !forward {
        assert_eq!(pids(&status.slots[0]), pids(&before.slots[0]), "the slot that serves is not touched");
    }
    let past = kcp.past();
    assert_eq!(past.len(), 1, "{past:#?}");
    assert_eq!(past[0].outcome == HandoverOutcome::Done, forward, "{past:#?}");
    if phase != Phase::Done {
        assert_eq!(past[0].resumed, [phase]);
        assert_eq!(status.handover.as_ref(), Some(&past[0]), "and status shows it");
        assert!(kcp.home.ok(&["status"]).contains(&format!("a daemon ended in the phase {phase}")));
    }
    assert_eq!(api::read_config_map(&maps, "acknowledged").await, "yes");
    let lease = format!("{:?}", past[0].warnings);
    assert_eq!(lease, "[]", "{phase}");
    kcp.home.ok(&["down"]);
    assert!(dev.ended().success());
}

#[tokio::test]
async fn a_daemon_killed_in_staged_is_followed_by_one_that_rolls_back() {
    killed_in(Phase::Staged).await;
}

#[tokio::test]
async fn a_daemon_killed_in_started_is_followed_by_one_that_rolls_back() {
    killed_in(Phase::Started).await;
}

#[tokio::test]
async fn a_daemon_killed_in_ready_is_followed_by_one_that_rolls_back() {
    killed_in(Phase::Ready).await;
}

#[tokio::test]
async fn a_daemon_killed_in_retargeted_is_followed_by_one_that_goes_on() {
    killed_in(Phase::Retargeted).await;
}

#[tokio::test]
async fn a_daemon_killed_in_drained_is_followed_by_one_that_goes_on() {
    killed_in(Phase::Drained).await;
}

#[tokio::test]
async fn a_daemon_killed_in_old_stopping_is_followed_by_one_that_goes_on() {
    killed_in(Phase::OldStopping).await;
}

#[tokio::test]
async fn a_daemon_killed_in_old_gone_is_followed_by_one_that_goes_on() {
    killed_in(Phase::OldGone).await;
}

#[tokio::test]
async fn a_daemon_killed_in_lease_released_is_followed_by_one_that_goes_on() {
    killed_in(Phase::LeaseReleased).await;
}

#[tokio::test]
async fn a_daemon_killed_in_done_is_followed_by_one_that_remembers_it() {
    killed_in(Phase::Done).await;
}

#[tokio::test]
async fn a_daemon_that_is_replaced_while_the_new_slot_starts_is_followed_by_one_that_rolls_back() {
    let kcp = Kcp::new();
    let dev = kcp.daemon(&[("KCP_STANDIN_SLOT_B_READY_AFTER", "60")]);
    dev.until("kcp to be served", at_rest).await;
    let client = kcp.home.client();
    let handover = tokio::spawn(async move { client.handover(Wish::Plain).await });
    dev.until("the new slot to start", |status| status.slots[1].state == ChainState::Starting).await;
    kcp.home.ok(&["upgrade", env!("CARGO_BIN_EXE_berth")]);
    handover.await.unwrap().unwrap_err();
    let status = dev.until("the handover to be rolled back", at_rest).await;
    assert_eq!(status.active_slot, Some(SlotName::A));
    assert_eq!(kcp.past()[0].resumed, [Phase::Started]);
    kcp.home.ok(&["down"]);
    assert!(dev.ended().success());
}

/// A new connection for each request, one after the other, until told to stop. How many were answered; the first failure ends it.
async fn ask(kcp: &Kcp, stop: &tokio::sync::Notify) -> u32 {
    let certificate = std::fs::read(kcp.home.layout().kcp_shared().join("apiserver.crt")).unwrap();
    let url = format!("https://{}/readyz", kcp.home.front);
    let mut asked = 0;
    let stopped = stop.notified();
    tokio::pin!(stopped);
    loop {
        let https = https::Https::new(&certificate, None).unwrap();
        let (status, _) = https.get(&url, Duration::from_secs(30)).await.unwrap();
        assert_eq!(status, 200);
        asked += 1;
        tokio::select! {
            () = &mut stopped => return asked,
            () = tokio::time::sleep(Duration::from_millis(20)) => {}
        }
    }
}

#[tokio::test]
async fn a_new_slot_that_hangs_for_good_is_rolled_back_and_no_client_notices() {
    let kcp = Kcp::new();
    let dev = kcp.daemon(&[("KCP_STANDIN_SLOT_B_HANG", "1")]);
    let before = dev.until("kcp to be served", at_rest).await;
    let (maps, stop, client) = (kcp.written().await, tokio::sync::Notify::new(), kcp.home.client());
    let handover = async {
        let ended = client.handover(Wish::Plain).await.unwrap();
        stop.notify_one();
        ended
    };
    let (ended, asked) = tokio::join!(handover, ask(&kcp, &stop));
    let HandoverOutcome::RolledBack(reason) = &ended.outcome else { panic!("{ended:#?}") };
    assert!(
        reason.starts_with("slot b: hung in 2 starts in a row: slot-b/kcp: hung in its start"),
        "{reason}"
    );
    assert!(reason.contains("crd-informer-synced") && reason.contains("old lease"), "{reason}");
    assert!(asked > 0, "nobody asked meanwhile");

    let after = dev.until("slot a to be alone", at_rest).await;
    assert_eq!((after.active_slot, pids(&after.slots[0])), (Some(SlotName::A), pids(&before.slots[0])));
    assert_eq!(kcp_processes(&kcp.home.state()), 1, "SIGTERM would not have ended it");
    assert_eq!(api::read_config_map(&maps, "acknowledged").await, "yes");
    assert!(kcp.home.ok(&["events"]).contains("rolled back: slot b: hung in 2 starts in a row"));
    kcp.home.ok(&["down"]);
    assert!(dev.ended().success());
}

/// Every phase of a handover from a to b is an event, in its order, and so is what the front does meanwhile.
fn assert_phases_told(events: &str) {
    let told = [
        "from slot a to slot b",
        "staged after",
        "started after",
        "ready after",
        "retargeted after",
        "serves slot b at",
        "drains slot a, within",
        "slot a is drained: ",
        "drained after",
        "old-stopping after",
        "old-gone after",
        "lease-released after",
        "done after",
    ];
    let of_it = |line: &&str| line.contains(" handover ") || line.contains(" front ");
    let mut lines = events.lines().filter(of_it);
    for what in told {
        assert!(lines.any(|line| line.contains(what)), "{what}, in this place:\n{events}");
    }
    assert!(lines.any(|line| line.ends_with("done")), "{events}");
}

#[tokio::test]
async fn a_plan_a_handover_with_a_hung_start_and_its_history_agree() {
    let kcp = Kcp::new();
    let dev = kcp.daemon(&[("KCP_STANDIN_SLOT_B_HANG", "once"), ("KCP_STANDIN_SLOT_A_IGNORE_SIGTERM", "1")]);
    dev.until("kcp to be served", at_rest).await;
    let planned = kcp.home.ok(&["kcp", "handover", "--dry-run"]);
    assert!(planned.starts_with("handover: from slot a (kcp stand-in, 127.0.0.1:"), "{planned}");
    assert!(planned.contains("to slot b (kcp stand-in, any free port)"), "{planned}");
    assert_eq!(kcp.past(), [], "nothing was done");

    kcp.home.ok(&["kcp", "handover"]);
    let past = kcp.past().remove(0);
    assert_eq!(past.outcome, HandoverOutcome::Done, "{past:#?}");
    let [hang, stop] = &past.warnings[..] else { panic!("{past:#?}") };
    assert!(hang.contains("hung in its start beside the other slot"), "{hang}");
    assert!(stop.contains("slot a had not ended 5 s after its stop signal"), "{stop}");
    let status = dev.until("slot b to be alone", at_rest).await;
    assert_eq!(child(&status.slots[1], "kcp").restarts, 1);
    let events = kcp.home.ok(&["events"]);
    assert!(events.contains("hung in its start"), "and the operator can see why");
    assert_phases_told(&events);
    let told = kcp.home.ok(&["kcp", "history"]);
    assert!(told.contains("slot a to b, done after") && told.contains("Berth's own"), "{told}");

    let shared = kcp.home.layout().kcp_shared().join("sa.key");
    std::fs::write(&shared, "not a key").unwrap();
    let refused = kcp.home.berth(&["kcp", "handover", "--dry-run"]);
    let text = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert_eq!(refused.status.code(), Some(5), "{text}");
    assert!(text.contains("the last one that was done took") && text.contains("sa.key"), "{text}");
    kcp.home.ok(&["down"]);
    assert!(dev.ended().success());
}
