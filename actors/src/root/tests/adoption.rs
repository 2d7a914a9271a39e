//! The daemon dies and another one takes over: whatever still runs as it should is left alone.

use super::*;
use crate::host::TenantRecord;
use crate::policy::{Restart, RestartPolicy};
use std::collections::BTreeMap;

fn pids(world: &FakeWorld) -> BTreeMap<String, Option<u32>> {
    world.host.live().into_iter().map(|name| (name.clone(), world.host.pid(&name))).collect()
}

async fn arrived(world: &FakeWorld) -> Addr<Root> {
    let root = start(world).await;
    root.send(Command::AwaitReady).await.unwrap().unwrap();
    root
}

/// A whole tree with the tenant `demo`, whose daemon is dead.
async fn left_behind() -> FakeWorld {
    tokio::time::pause();
    let world = FakeWorld::default().with_tenant("demo");
    arrived(&world).await;
    world.after_a_crash()
}

#[actix::test]
async fn every_process_is_kept_and_the_front_is_back_on_its_slot() {
    let world = left_behind().await;
    let (before, births) = (pids(&world), world.host.diary.of("spawn").len());
    let root = arrived(&world).await;
    let status = until(&root, all_ready).await;
    assert_eq!((pids(&world), world.host.diary.of("spawn").len()), (before, births));
    assert_eq!(world.target(), Some(SlotName::A));
    assert_eq!(tenant(&status, "demo").children[0].restarts, 0);
    assert_eq!(world.host.diary.of("signal"), [""; 0]);
}

#[actix::test]
async fn an_adopted_process_that_dies_is_restarted_like_any_other() {
    let world = left_behind().await;
    let root = arrived(&world).await;
    world.host.exit(world.host.pid("demo/apiserver").unwrap(), ExitStatus::Unknown);
    until(&root, |status| tenant(status, "demo").children[2].restarts == 1).await;
    until(&root, all_ready).await;
}

#[actix::test]
async fn what_died_meanwhile_comes_back_where_its_clients_expect_it() {
    let world = left_behind().await;
    let kcp = world.host.pid("slot-a/kcp");
    world.host.exit(world.host.pid("slot-a/kine").unwrap(), ExitStatus::Signal(9));
    arrived(&world).await;
    let ports = world.component("slot-a/kine").previous_addresses();
    assert!(matches!(ports[..], [None, Some(_)]), "{ports:?}");
    assert_eq!(world.host.pid("slot-a/kcp"), kcp, "kcp rides through");
}

/// It would answer for the database that comes up now as for the one it knew.
#[actix::test]
async fn a_kine_whose_store_died_without_a_daemon_is_dead_before_the_store_is_started() {
    let world = left_behind().await;
    let (kine, kcp) = (world.host.pid("slot-a/kine"), world.host.pid("slot-a/kcp"));
    world.host.exit(world.host.pid("kcp-store/postgres").unwrap(), ExitStatus::Signal(9));
    arrived(&world).await;
    assert_eq!(world.host.diary.of("kill"), ["slot-a/kine"]);
    let all = world.host.diary.all();
    let killed = all.iter().position(|act| act == "kill slot-a/kine");
    let started = all.iter().rposition(|act| act == "spawn kcp-store/postgres");
    assert!(killed < started, "{all:?}");
    assert_ne!(world.host.pid("slot-a/kine"), kine);
    assert_eq!(world.host.pid("slot-a/kcp"), kcp, "kcp rides through");
}

/// The disk was full when it was found listening.
#[actix::test]
async fn an_address_that_was_never_recorded_is_asked_for_and_restarts_nobody() {
    let world = left_behind().await;
    let (before, kine) = (pids(&world), world.host.pid("slot-a/kine"));
    world.host.forget_address("slot-a/kine");
    let root = arrived(&world).await;
    until(&root, all_ready).await;
    assert_eq!(pids(&world), before);
    assert!(world.host.address(kine.unwrap()).is_some(), "and recorded");
}

#[actix::test]
async fn a_changed_spec_restarts_its_component_and_what_cannot_live_through_that() {
    let world = left_behind().await;
    let before = pids(&world);
    world.component("demo/kine").set_args(Some(&["--new"]));
    arrived(&world).await;
    let after = pids(&world);
    let changed = before.iter().filter(|(name, pid)| after[*name] != **pid).map(|(name, _)| name.as_str());
    assert_eq!(changed.collect::<Vec<_>>(), ["demo/apiserver", "demo/kine"]);
    let stopped = world.host.diary.of("signal");
    assert_eq!(stopped, ["demo/apiserver Term", "demo/kine Term"]);
}

#[actix::test]
async fn a_changed_policy_restarts_nobody_and_is_obeyed_from_then_on() {
    let world = left_behind().await;
    let before = pids(&world);
    world.set_policy("demo/kine", RestartPolicy { intensity: 1, ..RestartPolicy::default() });
    let root = arrived(&world).await;
    assert_eq!(pids(&world), before);
    for _ in 0..2 {
        until(&root, |status| tenant(status, "demo").state == ChainState::Ready).await;
        world.host.exit(world.host.pid("demo/kine").unwrap(), ExitStatus::Code(1));
        until(&root, |status| tenant(status, "demo").state != ChainState::Ready).await;
    }
    let status = until(&root, |status| tenant(status, "demo").state == ChainState::Degraded).await;
    assert!(tenant(&status, "demo").reason.as_ref().unwrap().contains("gave up after 1 restarts"));
}

#[actix::test]
async fn what_ended_cleanly_while_no_daemon_lived_is_started_as_at_a_boot() {
    let world = left_behind().await;
    world.set_policy(
        "demo/apiserver",
        RestartPolicy { restart: Restart::Transient(vec![0]), ..RestartPolicy::default() },
    );
    let before = world.host.pid("demo/apiserver");
    world.host.exit(before.unwrap(), ExitStatus::Code(0));
    arrived(&world).await;
    assert_ne!(world.host.pid("demo/apiserver"), before, "nobody saw how it ended");
}

#[actix::test]
async fn what_cannot_be_started_today_is_no_reason_to_end_what_runs() {
    let world = left_behind().await;
    let before = pids(&world);
    world.component("demo/kine").set_args(None);
    arrived(&world).await;
    assert_eq!(pids(&world), before);
}

#[actix::test]
async fn a_tenant_that_should_not_run_is_stopped_in_reverse() {
    let world = left_behind().await;
    let record = world.tenant_record("demo").unwrap();
    world.set_record(TenantRecord { run: false, ..record });
    let root = arrived(&world).await;
    until(&root, |status| tenant(status, "demo").state == ChainState::Down).await;
    let stopped = world.host.diary.of("signal");
    assert_eq!(stopped, ["demo/apiserver Term", "demo/kine Term", "demo/postgres Term"]);
}

#[actix::test]
async fn what_no_record_accounts_for_is_ended_before_anything_else() {
    let world = left_behind().await;
    world.forget_tenant("demo");
    arrived(&world).await;
    assert_eq!(world.host.diary.of("stray"), ["demo/postgres", "demo/kine", "demo/apiserver"]);
}

#[actix::test]
async fn a_half_deleted_tenant_is_ended_before_its_files_go() {
    let world = left_behind().await;
    let record = world.tenant_record("demo").unwrap();
    world.set_record(TenantRecord { run: false, erase: true, ..record });
    arrived(&world).await;
    assert_eq!(world.host.diary.of("stray").len(), 3);
    assert_eq!(world.diary.of("erase"), ["demo"]);
}

#[actix::test]
async fn adopted_tenants_wait_for_no_turn_and_leave_none_to_the_others() {
    tokio::time::pause();
    let names = ["a1", "a2", "a3", "a4"];
    let world = names.into_iter().fold(FakeWorld::default(), FakeWorld::with_tenant);
    arrived(&world).await;
    let world = world.after_a_crash();
    for name in names {
        world.component(&format!("{name}/apiserver")).set_open(false);
    }
    let before = pids(&world);
    let root = start(&world).await;
    let looked_at = |status: &TreeStatus| {
        names.iter().all(|name| {
            let child = &tenant(status, name).children[2];
            child.pid.is_some() && child.waits_for.as_deref() == Some("the test to open its gate")
        })
    };
    until(&root, looked_at).await;
    for name in names {
        world.component(&format!("{name}/apiserver")).set_open(true);
    }
    until(&root, all_ready).await;
    assert_eq!(pids(&world), before);
}

#[actix::test]
async fn a_down_right_after_the_start_stops_what_was_adopted() {
    let world = left_behind().await;
    let root = start(&world).await;
    root.send(Command::Down).await.unwrap().unwrap();
    assert_eq!(world.host.live(), [""; 0]);
}

/// Killed fifty times, at any moment of its start.
#[actix::test]
async fn no_number_of_crashes_makes_a_second_process() {
    let mut world = left_behind().await;
    let before = pids(&world);
    for crash in 0..50u64 {
        let root = Root::new(world.world()).start();
        drop(root.send(Command::Up).await);
        for _ in 0..crash {
            tokio::task::yield_now().await;
        }
        world = world.after_a_crash();
    }
    arrived(&world).await;
    assert_eq!(pids(&world), before);
    assert_eq!(world.host.diary.of("twice"), [""; 0]);
}

#[actix::test]
async fn a_tenant_whose_record_is_torn_is_left_alone_and_holds_nobody_up() {
    tokio::time::pause();
    let world = FakeWorld::default().with_tenant("demo").with_tenant("torn");
    arrived(&world).await;
    let world = world.after_a_crash();
    let before = pids(&world);
    world.tear_record("torn");
    let root = start(&world).await;
    let others = |status: &TreeStatus| tenant(status, "demo").state == ChainState::Ready;
    let status = until(&root, others).await;
    assert_eq!(tenant(&status, "torn").state, ChainState::Refused);
    assert_eq!(tenant(&status, "torn").reason.as_deref(), Some("its record is torn"));
    let refused = |command: Command| async { root.send(command).await.unwrap().unwrap_err().to_string() };
    let name = || "torn".to_owned();
    assert!(refused(Command::StopTenant { name: name() }).await.contains("restart the daemon"));
    assert!(refused(Command::DeleteTenant { name: name() }).await.contains("its record is torn"));
    assert!(refused(Command::CreateTenant { name: name() }).await.contains("already"));
    assert_eq!(pids(&world), before, "what runs of it runs on");
    assert_eq!(world.host.diary.of("stray"), [""; 0]);
}

/// Else everything would run on while whoever asked is told that it is stopped.
#[actix::test]
async fn a_down_while_the_records_are_read_stops_what_runs_before_it_is_answered() {
    tokio::time::pause();
    let record = recorded(SlotName::B, Phase::Drained);
    let world = FakeWorld::default().with_tenant("demo");
    arrived(&world).await;
    let world = world.after_a_crash().with_record(record);
    world.stall("journal read");
    let root = Root::new(world.world()).start();
    let up = tokio::spawn(root.send(Command::Up));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!root.send(IsUp).await.unwrap());
    let down = tokio::spawn(root.send(Command::Down));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!down.is_finished());
    world.resume();
    down.await.unwrap().unwrap().unwrap();
    assert!(up.await.unwrap().unwrap().is_err());
    assert_eq!(world.host.live(), [""; 0]);
}
