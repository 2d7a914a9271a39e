//! What a handover would do, what past ones did, and what they cost.

use super::*;
use crate::host::Findings;
use crate::status::{HandoverPlan, HandoverStatus};

async fn plan(root: &Addr<Root>) -> HandoverPlan {
    match root.send(Command::PlanHandover { wish: Wish::Plain }).await.unwrap() {
        Ok(Reply::Plan(plan)) => *plan,
        other => panic!("{other:?}"),
    }
}

async fn hand_over(root: &Addr<Root>) -> HandoverStatus {
    match root.send(handover()).await.unwrap() {
        Ok(Reply::Handover(status)) => *status,
        other => panic!("{other:?}"),
    }
}

#[actix::test]
async fn a_plan_tells_everything_that_speaks_against_a_handover_and_changes_nothing() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    let young = plan(&root).await;
    assert_eq!((young.from, young.to, young.refusals), (SlotName::A, SlotName::B, vec![]));
    assert!(young.warnings[0].contains("was not seen to for 2 s yet"), "{:?}", young.warnings);
    tokio::time::advance(Duration::from_secs(3)).await;
    until(&root, |_| true).await;
    let found = Findings { refusals: vec!["sa.key is missing".into()], warnings: vec!["it expires".into()] };
    world.set_findings(found);
    let settled = plan(&root).await;
    assert_eq!(settled.refusals, ["sa.key is missing"]);
    assert_eq!(settled.warnings, ["it expires"]);

    world.component("slot-a/kcp").set_open(false);
    world.host.exit(world.host.pid("slot-a/kcp").unwrap(), ExitStatus::Signal(9));
    until(&root, |status| status.slots[0].state != ChainState::Ready).await;
    let refusals = plan(&root).await.refusals;
    assert_eq!(refusals, ["slot a is not ready: there is nothing to hand over", "sa.key is missing"]);
    assert_eq!((world.diary.of("stage"), world.record()), (vec![], None));
}

#[actix::test]
async fn a_plan_expects_what_the_last_handover_took_and_the_history_tells_it() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    let done = hand_over(&root).await;
    let Ok(Reply::History(history)) = root.send(Command::HandoverHistory).await.unwrap() else {
        panic!("no history")
    };
    assert_eq!(history.handovers, std::slice::from_ref(&done));
    assert_eq!((done.old.version.as_deref(), done.began.is_some()), (Some("v1"), true));
    assert!(done.old.process.is_some() && done.new.process.is_some() && done.old.process != done.new.process);
    let next = plan(&root).await;
    assert_eq!((next.from, next.expected), (SlotName::B, Some(done.spent)));
}

/// In the test's own time, which moves only while everybody waits.
#[actix::test]
async fn a_slot_that_has_led_for_long_is_not_waited_for() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    tokio::time::advance(Duration::from_secs(3)).await;
    until(&root, |_| true).await;
    let spent = hand_over(&root).await.spent;
    assert!(spent.settle_us < 1000, "{spent:?}");
    assert!(spent.own() < Duration::from_millis(10), "{spent:?}");
}

#[actix::test]
async fn an_old_slot_that_does_not_end_is_killed_after_five_seconds_and_the_history_says_so() {
    let world = FakeWorld::default();
    world.host.deafen("slot-a/kcp");
    let root = started(&world).await;
    until(&root, all_ready).await;
    let reply = tokio::spawn(root.send(handover()));
    until(&root, |status| status.slots[0].state == ChainState::Down).await;
    reply.await.unwrap().unwrap().unwrap();
    let past = world.past().remove(0);
    assert_eq!(past.warnings, ["slot a had not ended 5 s after its stop signal, and was killed"]);
    assert!((5_000_000..6_000_000).contains(&past.spent.stop_us), "{:?}", past.spent);
}

#[actix::test]
async fn a_new_slot_that_needed_a_second_start_is_told_with_its_reason() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.component("slot-b/kcp").set_open(false);
    let reply = tokio::spawn(root.send(handover()));
    until(&root, |_| world.host.pid("slot-b/kcp").is_some()).await;
    world.host.exit(world.host.pid("slot-b/kcp").unwrap(), ExitStatus::Signal(9));
    until(&root, |status| status.slots[1].reason.is_some()).await;
    world.component("slot-b/kcp").set_open(true);
    until(&root, |status| status.active_slot == Some(SlotName::B)).await;
    reply.await.unwrap().unwrap().unwrap();
    let warning = world.past()[0].warnings[0].clone();
    assert!(
        warning.starts_with("slot b was not ready at the first try: kcp: killed by signal 9"),
        "{warning}"
    );
}

#[actix::test]
async fn a_lease_that_is_watched_is_seen_the_moment_it_changes_hands() {
    let world = FakeWorld::default().with_lease_watch();
    let root = started(&world).await;
    until(&root, all_ready).await;
    tokio::time::advance(Duration::from_secs(3)).await;
    world.stall("journal lease-released");
    let reply = tokio::spawn(root.send(handover()));
    until(&root, |_| world.record().is_some_and(|record| record.phase == Phase::LeaseReleased)).await;
    world.set_lease("host_other");
    world.resume();
    for _ in 0..50 {
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    world.set_lease("host_b");
    for _ in 0..50 {
        tokio::time::advance(Duration::from_millis(1)).await;
    }
    let Ok(Reply::Handover(status)) = reply.await.unwrap().unwrap() else { panic!("refused") };
    assert!(status.spent.hold_us < 60_000, "not after the next look: {:?}", status.spent);
}
