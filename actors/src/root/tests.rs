//! The whole tree on a scripted host, with paused time: no process, no socket, no wall clock.

use super::*;
use crate::fake::FakeWorld;
use crate::handover::{Phase, Record};
use crate::host::ExitStatus;
use crate::status::{ChainStatus, HandoverOutcome};

/// Polls the status under paused time until `wanted` holds; a minute of virtual time is the limit.
async fn until(root: &Addr<Root>, wanted: impl Fn(&TreeStatus) -> bool) -> TreeStatus {
    let mut last = TreeStatus::default();
    for _ in 0..6000 {
        if let Ok(Ok(Reply::Status(status))) = root.send(Command::Status).await {
            if wanted(&status) {
                return *status;
            }
            last = *status;
        }
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    panic!("it never came to that: {last:#?}");
}

async fn started(world: &FakeWorld) -> Addr<Root> {
    tokio::time::pause();
    let root = Root::new(world.world()).start();
    root.send(Command::Up).await.unwrap().unwrap();
    root
}

fn tenant<'a>(status: &'a TreeStatus, name: &str) -> &'a ChainStatus {
    status.tenants.iter().find(|chain| chain.name == name).expect("the tenant is in the tree")
}

fn all_ready(status: &TreeStatus) -> bool {
    status.front.target.is_some() && status.tenants.iter().all(|chain| chain.state == ChainState::Ready)
}

#[actix::test]
async fn everything_comes_up_in_order_and_the_front_follows_the_active_slot() {
    let world = FakeWorld::default().with_tenant("demo");
    let root = started(&world).await;
    root.send(Command::AwaitReady).await.unwrap().unwrap();
    let status = until(&root, all_ready).await;
    let spawned = world.host.diary.of("spawn");
    let at = |name: &str| spawned.iter().position(|line| line == name).unwrap();
    assert!(at("kcp-store/postgres") < at("slot-a/kine") && at("slot-a/kine") < at("slot-a/kcp"));
    assert!(!spawned.iter().any(|line| line.starts_with("slot-b")));
    assert_eq!(status.front.target.unwrap().slot, SlotName::A);
}

#[actix::test]
async fn down_stops_tenants_then_the_slot_then_the_store_each_in_reverse() {
    let world = FakeWorld::default().with_tenant("demo");
    let root = started(&world).await;
    until(&root, all_ready).await;
    root.send(Command::Down).await.unwrap().unwrap();
    let stopped: Vec<_> =
        world.host.diary.of("signal").iter().map(|line| line.replace(" Term", "")).collect();
    assert_eq!(
        stopped,
        ["demo/apiserver", "demo/kine", "demo/postgres", "slot-a/kcp", "slot-a/kine", "kcp-store/postgres"]
    );
}

#[actix::test]
async fn a_handover_ends_on_the_other_slot_with_the_old_one_down_and_the_journal_closed() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    let reply = tokio::spawn(root.send(Command::Handover));
    let status = until(&root, |status| {
        status.active_slot == Some(SlotName::B) && status.slots[0].state == ChainState::Down
    })
    .await;
    assert_eq!(status.front.target.as_ref().map(|target| target.slot), Some(SlotName::B));
    until(&root, |status| {
        status.handover.as_ref().is_some_and(|handover| handover.outcome == HandoverOutcome::Done)
    })
    .await;
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
    let reply = tokio::spawn(root.send(Command::Handover));
    let rolled_back = |status: &TreeStatus| {
        status
            .handover
            .as_ref()
            .is_some_and(|handover| matches!(handover.outcome, HandoverOutcome::RolledBack(_)))
    };
    let status = until(&root, rolled_back).await;
    assert!(reply.await.unwrap().unwrap().is_ok());
    assert_eq!(status.active_slot, Some(SlotName::A));
    assert_eq!(status.slots[1].state, ChainState::Down);
    assert_eq!(world.diary.of("retarget"), retargets);
}

#[actix::test]
async fn a_new_slot_that_is_not_ready_in_time_is_rolled_back() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.component("slot-b/kcp").set_open(false);
    let reply = tokio::spawn(root.send(Command::Handover));
    for _ in 0..200 {
        tokio::time::advance(Duration::from_secs(1)).await;
    }
    let Ok(Reply::Handover(status)) = reply.await.unwrap().unwrap() else { panic!("refused") };
    let HandoverOutcome::RolledBack(reason) = status.outcome else { panic!("{status:?}") };
    assert!(reason.contains("slot b"), "{reason}");
    assert_eq!(world.target(), Some(SlotName::A));
}

#[actix::test]
async fn a_handover_cut_short_after_the_retarget_starts_on_the_new_slot() {
    let record = Record { from: SlotName::A, to: SlotName::B, phase: Phase::Drained, old_lease: None };
    let world = FakeWorld::default().with_record(record);
    let root = started(&world).await;
    let status = until(&root, all_ready).await;
    assert_eq!(status.active_slot, Some(SlotName::B));
    assert_eq!(world.record().map(|record| record.phase), Some(Phase::Done));
}

#[actix::test]
async fn the_front_parks_while_the_active_kcp_is_dead_and_follows_its_replacement() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    let pid = world.host.pid("slot-a/kcp").unwrap();
    world.component("slot-a/kcp").set_open(false);
    world.host.exit(pid, ExitStatus::Signal(9));
    until(&root, |status| status.front.target.is_none()).await;
    world.component("slot-a/kcp").set_open(true);
    until(&root, all_ready).await;
    assert_eq!(world.diary.of("retarget"), ["Some(A)", "None", "Some(A)"]);
}

#[actix::test]
async fn one_tenants_crash_loop_leaves_every_other_tenant_ready() {
    let world = FakeWorld::default().with_tenant("good").with_tenant("bad");
    let root = started(&world).await;
    until(&root, all_ready).await;
    for _ in 0..6 {
        until(&root, |status| tenant(status, "bad").state == ChainState::Ready).await;
        world.host.exit(world.host.pid("bad/kine").unwrap(), ExitStatus::Code(1));
        until(&root, |status| tenant(status, "bad").state != ChainState::Ready).await;
    }
    let status = until(&root, |status| tenant(status, "bad").state == ChainState::Degraded).await;
    assert_eq!(tenant(&status, "good").state, ChainState::Ready);
    let kine = &tenant(&status, "bad").children[1];
    assert!(kine.last_failure.as_ref().unwrap().contains("gave up"), "{kine:?}");
    assert_eq!(kine.log_tail, ["last words"]);
    root.send(Command::RetryTenant { name: "bad".into() }).await.unwrap().unwrap();
}

#[actix::test]
async fn no_more_tenants_start_at_once_than_allowed() {
    let world = ["a1", "a2", "a3"].into_iter().fold(FakeWorld::default(), FakeWorld::with_tenant);
    for name in ["a1", "a2", "a3"] {
        world.component(&format!("{name}/postgres")).set_open(false);
    }
    let root = started(&world).await;
    until(&root, |status| {
        status.tenants.iter().filter(|chain| chain.state == ChainState::Starting).count() == 2
    })
    .await;
    world.component("a1/postgres").set_open(true);
    world.component("a2/postgres").set_open(true);
    until(&root, |status| tenant(status, "a3").state == ChainState::Starting).await;
}

#[actix::test]
async fn a_created_tenant_is_durable_before_it_runs_and_deleted_without_a_trace() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    root.send(Command::CreateTenant { name: "demo".into() }).await.unwrap().unwrap();
    assert_eq!(world.diary.of("put"), ["demo true"]);
    let again = root.send(Command::CreateTenant { name: "demo".into() }).await.unwrap();
    assert!(matches!(again, Err(Refusal::AlreadyExists(_))));
    let bad = root.send(Command::CreateTenant { name: "a/b".into() }).await.unwrap();
    assert!(matches!(bad, Err(Refusal::BadRequest(_))));
    root.send(Command::DeleteTenant { name: "demo".into() }).await.unwrap().unwrap();
    assert_eq!(world.diary.of("erase"), ["demo"]);
    assert!(world.host.pid("demo/postgres").is_none());
    until(&root, |status| status.tenants.is_empty()).await;
}

#[actix::test]
async fn stop_and_start_of_a_tenant_are_answered_on_arrival() {
    let world = FakeWorld::default().with_tenant("demo");
    let root = started(&world).await;
    until(&root, all_ready).await;
    root.send(Command::StopTenant { name: "demo".into() }).await.unwrap().unwrap();
    assert!(world.host.pid("demo/postgres").is_none());
    root.send(Command::StartTenant { name: "demo".into() }).await.unwrap().unwrap();
    let before = world.host.pid("demo/postgres").unwrap();
    root.send(Command::RestartTenant { name: "demo".into() }).await.unwrap().unwrap();
    assert_ne!(world.host.pid("demo/postgres").unwrap(), before);
    let unknown = root.send(Command::StopTenant { name: "nobody".into() }).await.unwrap();
    assert!(matches!(unknown, Err(Refusal::NotFound(_))));
}

/// A command that nobody waits for yet.
fn ask(root: &Addr<Root>, command: Command) -> tokio::task::JoinHandle<Result<Reply, Refusal>> {
    let request = root.send(command);
    tokio::spawn(async move { request.await.unwrap() })
}

/// `demo` is ready, and its postgres will not hear a stop signal.
async fn slow_to_stop(world: &FakeWorld) -> Addr<Root> {
    world.host.deafen("demo/postgres");
    let root = started(world).await;
    until(&root, all_ready).await;
    root
}

async fn until_stopping(root: &Addr<Root>) {
    until(root, |status| tenant(status, "demo").state == ChainState::Stopping).await;
}

fn overtaken(answer: &Result<Reply, Refusal>) -> bool {
    matches!(answer, Err(Refusal::Conflict(text)) if text.contains("took its place"))
}

/// Were a chain told again to stop at each piece of news, the news would beget news until nothing else is heard.
#[actix::test]
async fn tenants_that_are_slow_to_stop_are_told_once_and_do_not_drown_the_tree() {
    let world = ["t1", "t2", "t3"].into_iter().fold(FakeWorld::default(), FakeWorld::with_tenant);
    for name in ["t1", "t2", "t3"] {
        world.host.deafen(&format!("{name}/apiserver"));
        world.host.deafen(&format!("{name}/postgres"));
    }
    let root = started(&world).await;
    until(&root, all_ready).await;
    let down = ask(&root, Command::Down);
    until(&root, |status| tenant(status, "t3").state == ChainState::Stopping).await;
    assert!(down.await.unwrap().is_ok());
    assert_eq!(world.host.diary.of("signal").iter().filter(|line| line.starts_with("t1/")).count(), 3);
}

#[actix::test]
async fn a_stop_that_a_start_overtakes_is_told_so_and_the_tenant_runs() {
    let world = FakeWorld::default().with_tenant("demo");
    let root = slow_to_stop(&world).await;
    let stop = ask(&root, Command::StopTenant { name: "demo".into() });
    until_stopping(&root).await;
    root.send(Command::StartTenant { name: "demo".into() }).await.unwrap().unwrap();
    assert!(overtaken(&stop.await.unwrap()));
    assert!(world.tenant_record("demo").unwrap().run);
}

#[actix::test]
async fn a_start_that_a_stop_overtakes_is_told_so_and_the_tenant_is_down() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.component("demo/kine").set_open(false);
    let create = ask(&root, Command::CreateTenant { name: "demo".into() });
    until(&root, |status| !status.tenants.is_empty()).await;
    root.send(Command::StopTenant { name: "demo".into() }).await.unwrap().unwrap();
    assert!(overtaken(&create.await.unwrap()));
    assert!(!world.tenant_record("demo").unwrap().run);
    assert!(world.host.pid("demo/postgres").is_none());
}

#[actix::test]
async fn nothing_starts_again_what_is_being_deleted() {
    let world = FakeWorld::default().with_tenant("demo");
    let root = slow_to_stop(&world).await;
    let restart = ask(&root, Command::RestartTenant { name: "demo".into() });
    until_stopping(&root).await;
    let delete = ask(&root, Command::DeleteTenant { name: "demo".into() });
    until(&root, |_| world.tenant_record("demo").is_some_and(|record| record.erase)).await;
    for command in [
        Command::StartTenant { name: "demo".into() },
        Command::RestartTenant { name: "demo".into() },
        Command::DeleteTenant { name: "demo".into() },
    ] {
        let answer = root.send(command).await.unwrap();
        assert!(matches!(&answer, Err(Refusal::Conflict(text)) if text.contains("deleted")), "{answer:?}");
    }
    assert!(delete.await.unwrap().is_ok());
    assert!(overtaken(&restart.await.unwrap()));
    assert_eq!(world.host.diary.of("spawn").iter().filter(|line| *line == "demo/postgres").count(), 1);
    assert!(world.tenant_record("demo").is_none());
}

#[actix::test]
async fn a_restarted_tenant_that_was_stopped_is_one_that_should_run() {
    let world = FakeWorld::default().with_tenant("demo");
    let root = started(&world).await;
    root.send(Command::StopTenant { name: "demo".into() }).await.unwrap().unwrap();
    root.send(Command::RestartTenant { name: "demo".into() }).await.unwrap().unwrap();
    assert!(world.tenant_record("demo").unwrap().run);
}

#[actix::test]
async fn a_deletion_that_fails_can_be_asked_for_again_and_meanwhile_nothing_runs() {
    let world = FakeWorld::default().with_half_deleted("demo");
    world.break_disk(true);
    let root = started(&world).await;
    let status = until(&root, |status| status.front.target.is_some()).await;
    assert_eq!(tenant(&status, "demo").state, ChainState::Down);
    let start = root.send(Command::StartTenant { name: "demo".into() }).await.unwrap();
    assert!(matches!(start, Err(Refusal::Conflict(_))));
    world.break_disk(false);
    root.send(Command::DeleteTenant { name: "demo".into() }).await.unwrap().unwrap();
    assert!(world.tenant_record("demo").is_none());
}

#[actix::test]
async fn a_half_deleted_tenant_is_erased_before_anything_starts() {
    let world = FakeWorld::default().with_half_deleted("gone").with_tenant("demo");
    let root = started(&world).await;
    let status = until(&root, all_ready).await;
    assert_eq!(world.diary.of("erase"), ["gone"]);
    assert_eq!(status.tenants.len(), 1);
}

#[actix::test]
async fn a_change_that_cannot_be_written_did_not_happen() {
    let world = FakeWorld::default().with_tenant("demo");
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.break_disk(true);
    let name = || "demo".to_owned();
    for command in [Command::StopTenant { name: name() }, Command::DeleteTenant { name: name() }] {
        assert!(matches!(root.send(command).await.unwrap(), Err(Refusal::Failed(_))));
    }
    assert!(matches!(
        root.send(Command::CreateTenant { name: "second".into() }).await.unwrap(),
        Err(Refusal::Failed(_))
    ));
    world.break_disk(false);
    let status = until(&root, all_ready).await;
    assert_eq!(status.tenants.len(), 1);
    root.send(Command::RestartTenant { name: name() }).await.unwrap().unwrap();
    root.send(Command::CreateTenant { name: "second".into() }).await.unwrap().unwrap();
}

#[actix::test]
async fn whoever_waits_for_a_tenant_hears_that_the_daemon_stops() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.component("demo/kine").set_open(false);
    let create = ask(&root, Command::CreateTenant { name: "demo".into() });
    until(&root, |status| !status.tenants.is_empty()).await;
    let ready = ask(&root, Command::AwaitReady);
    root.send(Command::Down).await.unwrap().unwrap();
    assert!(create.await.unwrap().is_err());
    assert!(ready.await.unwrap().is_err());
}
