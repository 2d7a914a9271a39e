//! Handovers: done, rolled back, cut short.

use super::*;
use crate::status::HandoverOutcome;

#[actix::test]
async fn a_handover_ends_on_the_other_slot_with_the_old_one_down_and_the_journal_closed() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    let reply = tokio::spawn(root.send(handover()));
    let status = until(&root, |status| {
        status.active_slot == Some(SlotName::B) && status.slots[0].state == ChainState::Down
    })
    .await;
    assert_eq!(status.front.target.as_ref().map(|target| target.slot), Some(SlotName::B));
    let status = until(&root, |status| {
        status.handover.as_ref().is_some_and(|handover| handover.outcome == HandoverOutcome::Done)
    })
    .await;
    let (done, rolled_back) = (status.handovers.done, status.handovers.rolled_back);
    assert_eq!((done.count, rolled_back.count), (1, 0));
    assert!(done.phases_ms.contains_key("drained"), "{done:?}");
    assert!(matches!(reply.await.unwrap().unwrap(), Ok(Reply::Handover(_))));
    assert_eq!(world.record().map(|record| (record.phase, record.to)), Some((Phase::Done, SlotName::B)));
    assert_eq!(world.diary.of("drain"), ["a"]);
    assert_eq!(world.diary.of("delete-lease"), ["host_a"]);
}

#[actix::test]
async fn a_handover_whose_canary_dies_rolls_back_without_touching_the_front() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.break_canary();
    let retargets = world.diary.of("retarget");
    let reply = tokio::spawn(root.send(handover()));
    let rolled_back = |status: &TreeStatus| {
        status
            .handover
            .as_ref()
            .is_some_and(|handover| matches!(handover.outcome, HandoverOutcome::RolledBack(_)))
    };
    let status = until(&root, rolled_back).await;
    assert_eq!((status.handovers.done.count, status.handovers.rolled_back.count), (0, 1));
    assert!(reply.await.unwrap().unwrap().is_ok());
    assert_eq!(status.active_slot, Some(SlotName::A));
    assert_eq!(status.slots[1].state, ChainState::Down);
    assert_eq!(world.diary.of("retarget"), retargets);
}

/// The wait asks at the address of that kcp, and its successor has another.
#[actix::test]
async fn a_wait_on_the_lease_is_over_with_the_kcp_it_asks_through() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.set_leader(SlotName::A, None);
    let reply = tokio::spawn(root.send(handover()));
    until(&root, |status| status.handover.is_some()).await;
    world.host.exit(world.host.pid("slot-a/kcp").unwrap(), ExitStatus::Signal(9));
    let Ok(Reply::Handover(status)) = reply.await.unwrap().unwrap() else { panic!("refused") };
    let HandoverOutcome::RolledBack(reason) = status.outcome else { panic!("{status:?}") };
    assert!(reason.contains("slot a is no longer ready"), "{reason}");

    world.set_leader(SlotName::A, Some("host_a"));
    until(&root, all_ready).await;
    let Ok(Reply::Handover(status)) = root.send(handover()).await.unwrap() else { panic!("refused") };
    assert_eq!(status.outcome, HandoverOutcome::Done, "and what it still had to say spoils no later one");
}

#[actix::test]
async fn a_new_slot_that_is_not_ready_in_time_is_rolled_back() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.component("slot-b/kcp").set_open(false);
    let reply = tokio::spawn(root.send(handover()));
    for _ in 0..200 {
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let Ok(Reply::Handover(status)) = reply.await.unwrap().unwrap() else { panic!("refused") };
    let HandoverOutcome::RolledBack(reason) = status.outcome else { panic!("{status:?}") };
    assert!(reason.contains("slot b"), "{reason}");
    assert_eq!(world.target(), Some(SlotName::A));
}

#[actix::test]
async fn a_new_slot_that_hangs_once_is_started_again_and_remarked() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.component("slot-b/kcp").hang(1, "kine");
    let Ok(Reply::Handover(status)) = root.send(handover()).await.unwrap() else { panic!("refused") };
    assert_eq!(status.outcome, HandoverOutcome::Done);
    assert_eq!(status.warnings, ["slot b was not ready at the first try: kcp: hung in its start"]);
    let births = |name: &str| world.host.diary.of("spawn").iter().filter(|line| *line == name).count();
    assert_eq!((births("slot-b/kine"), births("slot-b/kcp")), (2, 2));
}

#[actix::test]
async fn a_new_slot_that_hangs_again_is_rolled_back_at_once_and_the_next_handover_begins_anew() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    let (retargets, old) = (world.diary.of("retarget"), world.host.pid("slot-a/kcp"));
    world.component("slot-b/kcp").hang(u32::MAX, "kine");
    let Ok(Reply::Handover(status)) = root.send(handover()).await.unwrap() else { panic!("refused") };
    let HandoverOutcome::RolledBack(reason) = status.outcome else { panic!("{status:?}") };
    assert_eq!(reason, "slot b: hung in 2 starts in a row: hung in its start");
    assert_eq!((world.diary.of("retarget"), world.host.pid("slot-a/kcp")), (retargets, old));
    assert_eq!(world.host.live(), ["kcp-store/postgres", "slot-a/kine", "slot-a/kcp"]);

    world.component("slot-b/kcp").hang(1, "kine");
    let Ok(Reply::Handover(status)) = root.send(handover()).await.unwrap() else { panic!("refused") };
    assert_eq!(status.outcome, HandoverOutcome::Done, "the hangs of an earlier one are not counted");
}

#[actix::test]
async fn a_handover_cut_short_after_the_retarget_starts_on_the_new_slot() {
    let record = recorded(SlotName::A, Phase::Drained);
    let world = FakeWorld::default().with_record(record);
    let root = started(&world).await;
    let status = until(&root, all_ready).await;
    assert_eq!(status.active_slot, Some(SlotName::B));
    assert_eq!(world.record().map(|record| record.phase), Some(Phase::Done));
}

pub(super) const PHASES: [Phase; 10] = [
    Phase::Staged,
    Phase::Started,
    Phase::Ready,
    Phase::Retargeted,
    Phase::Drained,
    Phase::OldStopping,
    Phase::OldGone,
    Phase::LeaseReleased,
    Phase::Done,
    Phase::RolledBack,
];

pub(super) fn over(status: &TreeStatus) -> bool {
    status.handover.as_ref().is_some_and(|handover| handover.outcome != HandoverOutcome::Running)
}

/// One slot has processes, and the front is on it.
pub(super) fn assert_one_slot(world: &FakeWorld, status: &TreeStatus) {
    let active = status.active_slot.unwrap();
    let live = world.host.live();
    let of = |slot: SlotName| live.iter().filter(|name| name.starts_with(slot.chain())).count();
    assert_eq!((of(active), of(active.other())), (2, 0), "{live:?}");
    assert_eq!(world.target(), Some(active));
    assert_eq!(world.record().map(|record| record.active()), Some(active));
    assert_eq!(world.host.diary.of("twice"), [""; 0]);
}

/// A handover that stands still right after `phase` was journalled.
pub(super) async fn stopped_after(phase: Phase) -> (FakeWorld, Addr<Root>) {
    let world = FakeWorld::default();
    let root = start(&world).await;
    until(&root, all_ready).await;
    if phase == Phase::RolledBack {
        world.break_canary();
    }
    world.stall(&format!("journal {phase}"));
    root.do_send(handover());
    until(&root, |_| world.record().is_some_and(|record| record.phase == phase)).await;
    (world, root)
}

#[actix::test]
async fn a_daemon_that_dies_after_any_phase_leaves_exactly_one_slot_and_the_front_on_it() {
    tokio::time::pause();
    for phase in PHASES {
        let (dead, _root) = stopped_after(phase).await;
        let record = dead.record().unwrap();
        let world = FakeWorld::default().with_record(record.clone());
        let root = start(&world).await;
        let status = until(&root, all_ready).await;
        assert_eq!(status.active_slot, Some(record.active()), "{phase}");
        let end = if record.active() == record.to { Phase::Done } else { Phase::RolledBack };
        assert_eq!(world.record().map(|record| record.phase), Some(end), "{phase}");
        assert_one_slot(&world, &status);
    }
}

#[actix::test]
async fn a_daemon_killed_after_any_phase_keeps_the_slot_that_serves_and_stops_the_other() {
    tokio::time::pause();
    for phase in PHASES {
        let (dead, _root) = stopped_after(phase).await;
        let record = dead.record().unwrap();
        let serving = format!("{}/kcp", record.active().chain());
        let kept = dead.host.pid(&serving);
        let world = dead.after_a_crash();
        let root = start(&world).await;
        let one_slot = |status: &TreeStatus| all_ready(status) && world.host.live().len() == 3;
        let status = until(&root, one_slot).await;
        assert_eq!(status.active_slot, Some(record.active()), "{phase}");
        assert_eq!(world.host.pid(&serving), kept, "{phase}: the slot that serves is not touched");
        assert_one_slot(&world, &status);
    }
}

#[actix::test]
async fn whatever_dies_in_whatever_phase_a_handover_ends_with_one_slot_and_the_front_on_it() {
    let victims = ["slot-a/kine", "slot-a/kcp", "slot-b/kine", "slot-b/kcp", "kcp-store/postgres"];
    tokio::time::pause();
    for phase in &PHASES[..9] {
        for victim in victims {
            let (world, root) = stopped_after(*phase).await;
            let Some(pid) = world.host.pid(victim) else { continue };
            world.host.exit(pid, ExitStatus::Signal(9));
            world.resume();
            until(&root, over).await;
            let status = until(&root, all_ready).await;
            assert_one_slot(&world, &status);
            root.send(Command::Down).await.unwrap().unwrap();
            assert_eq!(world.host.live(), [""; 0], "{phase} {victim}");
        }
    }
}

#[actix::test]
async fn a_new_slot_that_dies_before_the_retarget_is_rolled_back_and_nobody_notices() {
    tokio::time::pause();
    let (world, root) = stopped_after(Phase::Retargeted).await;
    let retargets = world.diary.of("retarget");
    world.component("slot-b/kcp").set_open(false);
    world.host.exit(world.host.pid("slot-b/kcp").unwrap(), ExitStatus::Signal(9));
    until(&root, |status| status.slots[1].state != ChainState::Ready).await;
    world.resume();
    let status = until(&root, over).await;
    assert!(
        matches!(status.handover.as_ref().unwrap().outcome, HandoverOutcome::RolledBack(_)),
        "{status:#?}"
    );
    assert_eq!(world.diary.of("retarget"), retargets);
    assert_one_slot(&world, &status);
}

#[actix::test]
async fn an_old_slot_that_came_back_as_another_leader_does_not_keep_the_lease() {
    tokio::time::pause();
    let (world, root) = stopped_after(Phase::Started).await;
    world.host.exit(world.host.pid("slot-a/kcp").unwrap(), ExitStatus::Signal(9));
    world.set_leader(SlotName::A, Some("host_a_again"));
    world.set_lease("host_a_again");
    let came_back = |status: &TreeStatus| status.slots[0].children.iter().any(|child| child.restarts > 0);
    until(&root, |status| came_back(status) && all_ready(status)).await;
    world.resume();
    until(&root, over).await;
    assert_eq!(world.diary.of("delete-lease"), ["host_a_again"]);
}

#[actix::test]
async fn a_stale_lease_is_deleted_even_when_the_new_kcp_says_late_who_it_is() {
    let world = FakeWorld::default();
    world.set_lease("host_dead");
    world.set_leader(SlotName::A, None);
    let root = started(&world).await;
    until(&root, all_ready).await;
    tokio::time::advance(Duration::from_secs(2)).await;
    world.set_leader(SlotName::A, Some("host_a"));
    until(&root, |_| !world.diary.of("delete-lease").is_empty()).await;
    assert_eq!(world.diary.of("delete-lease"), ["host_dead"]);
}

#[actix::test]
async fn a_handover_is_answered_when_the_daemon_stops_meanwhile() {
    tokio::time::pause();
    let (world, root) = stopped_after(Phase::Started).await;
    let again = root.send(handover()).await.unwrap();
    assert!(matches!(&again, Err(Refusal::Conflict(why)) if why.contains("under way")), "{again:?}");
    root.send(Command::Down).await.unwrap().unwrap();
    assert_eq!(world.host.live(), [""; 0]);
}

#[actix::test]
async fn a_kcp_that_died_during_a_handover_does_not_wait_for_its_predecessors_lease() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.component("slot-b/kcp").set_open(false);
    let handover = tokio::spawn(root.send(handover()));
    until(&root, |status| status.slots[1].state == ChainState::Starting).await;
    let victim = world.host.pid("slot-a/kcp").unwrap();
    world.component("slot-a/kcp").set_open(false);
    world.host.exit(victim, ExitStatus::Signal(9));
    until(&root, |status| status.front.target.is_none()).await;
    world.set_lease("host_dead");
    world.component("slot-a/kcp").set_open(true);
    until(&root, all_ready).await;
    world.break_canary();
    world.component("slot-b/kcp").set_open(true);
    let Ok(Reply::Handover(ended)) = handover.await.unwrap().unwrap() else { panic!("refused") };
    assert!(matches!(ended.outcome, HandoverOutcome::RolledBack(_)), "{ended:?}");
    until(&root, |_| world.diary.of("delete-lease") == ["host_dead"]).await;
}
