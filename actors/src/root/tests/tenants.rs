//! Commands on tenants, alone and across each other.

use super::*;
use crate::policy::{Restart, RestartPolicy};
use crate::status::ChildState;

type Answer = tokio::task::JoinHandle<Result<Result<Reply, Refusal>, MailboxError>>;

/// Sends a command without waiting for its answer.
fn ask(root: &Addr<Root>, command: Command) -> Answer {
    tokio::spawn(root.send(command))
}

fn start(name: &str) -> Command {
    Command::StartTenant { name: name.into() }
}

fn stop(name: &str) -> Command {
    Command::StopTenant { name: name.into() }
}

fn delete(name: &str) -> Command {
    Command::DeleteTenant { name: name.into() }
}

fn create(name: &str) -> Command {
    Command::CreateTenant { name: name.into() }
}

async fn conflict(answer: Answer) -> String {
    match answer.await.unwrap().unwrap() {
        Err(Refusal::Conflict(why)) => why,
        other => panic!("{other:?}"),
    }
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
async fn a_transient_component_that_ends_cleanly_is_done_until_it_is_retried() {
    let world = FakeWorld::default().with_tenant("demo");
    let transient = RestartPolicy { restart: Restart::Transient(vec![0]), ..RestartPolicy::default() };
    world.set_policy("demo/kine", transient);
    let root = started(&world).await;
    until(&root, all_ready).await;
    let behind = world.host.pid("demo/apiserver");
    world.host.exit(world.host.pid("demo/kine").unwrap(), ExitStatus::Code(0));
    let status = until(&root, |status| tenant(status, "demo").state == ChainState::Done).await;
    let demo = tenant(&status, "demo");
    assert_eq!(demo.reason.as_deref(), Some("kine: exit code 0, and its policy leaves it at that"));
    assert_eq!((demo.children[1].state, demo.children[1].pid), (ChildState::Done, None));
    assert_eq!(world.host.pid("demo/apiserver"), behind, "what runs behind it runs on");
    let why = conflict(ask(&root, start("demo"))).await;
    assert!(why.starts_with("demo is done (kine: exit code 0"), "{why}");
    root.send(Command::RetryTenant { name: "demo".into() }).await.unwrap().unwrap();
    until(&root, all_ready).await;
    assert_eq!(world.host.diary.of("twice"), [""; 0]);
}

#[actix::test]
async fn a_tenant_that_gives_up_delays_none_of_a_hundred_others_that_start() {
    let names: Vec<String> = (0..100).map(|number| format!("good-{number}")).collect();
    let world =
        names.iter().fold(FakeWorld::default().with_tenant("bad"), |world, name| world.with_tenant(name));
    world.host.silence("bad/kine", true);
    let root = started(&world).await;
    for _ in 0..6 {
        until(&root, |_| world.host.pid("bad/kine").is_some()).await;
        let pid = world.host.pid("bad/kine").unwrap();
        world.host.exit(pid, ExitStatus::Code(1));
        until(&root, |_| world.host.pid("bad/kine") != Some(pid)).await;
    }
    let others_ready =
        |status: &TreeStatus| names.iter().all(|name| tenant(status, name).state == ChainState::Ready);
    let status = until(&root, others_ready).await;
    let bad = tenant(&status, "bad");
    assert_eq!(bad.state, ChainState::Degraded);
    assert!(bad.reason.as_ref().unwrap().contains("kine: gave up after 5 restarts"), "{bad:?}");
    let restarts = |status: &TreeStatus| {
        status.tenants.iter().flat_map(|chain| &chain.children).map(|child| child.restarts).sum::<u64>()
    };
    assert_eq!(restarts(&status), 5, "nobody else was restarted");
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
    // Whatever the tree has to do for what it was told of, it has done by its third answer.
    for _ in 0..3 {
        let Reply::Status(status) = root.send(Command::Status).await.unwrap().unwrap() else { panic!() };
        assert_eq!(tenant(&status, "a3").state, ChainState::Down);
    }
    assert!(world.host.pid("a3/postgres").is_none());
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
async fn a_command_that_comes_while_the_records_are_read_is_carried_out_after_that() {
    let world = FakeWorld::default().with_tenant("demo");
    tokio::time::pause();
    let root = Root::new(world.world()).start();
    let (up, created, unknown) = tokio::join!(
        root.send(Command::Up),
        root.send(Command::CreateTenant { name: "second".into() }),
        root.send(Command::StopTenant { name: "nobody".into() }),
    );
    assert_eq!(up.unwrap(), Ok(Reply::Done));
    assert_eq!(created.unwrap(), Ok(Reply::Done));
    assert!(matches!(unknown.unwrap(), Err(Refusal::NotFound(_))));
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

#[actix::test]
async fn one_component_restarts_by_order_and_the_rest_runs_on() {
    let world = FakeWorld::default().with_tenant("demo");
    let root = started(&world).await;
    until(&root, all_ready).await;
    let pid = |name: &str| world.host.pid(name).unwrap();
    let (postgres, apiserver) = (pid("demo/postgres"), pid("demo/apiserver"));
    let order = |name: &str| Command::RestartStep { name: name.into(), component: "apiserver".into() };
    root.send(order("demo")).await.unwrap().unwrap();
    assert_eq!(pid("demo/postgres"), postgres);
    assert_ne!(pid("demo/apiserver"), apiserver);
    until(&root, all_ready).await;
    root.send(stop("demo")).await.unwrap().unwrap();
    assert!(matches!(root.send(order("demo")).await.unwrap(), Err(Refusal::Conflict(_))));
    assert!(matches!(root.send(order("nobody")).await.unwrap(), Err(Refusal::NotFound(_))));
}

#[actix::test]
async fn a_start_during_a_stop_brings_it_up_again_and_answers_both() {
    let world = FakeWorld::default().with_tenant("demo");
    world.host.deafen("demo/apiserver");
    let root = started(&world).await;
    until(&root, all_ready).await;
    let stopped = ask(&root, stop("demo"));
    until(&root, |status| tenant(status, "demo").state == ChainState::Stopping).await;
    let started = ask(&root, start("demo"));
    assert!(conflict(stopped).await.contains("demo was started"));
    started.await.unwrap().unwrap().unwrap();
    until(&root, all_ready).await;
    assert_eq!(world.desired("demo"), Some(true));
    assert_eq!(world.host.diary.of("twice"), [""; 0]);
}

#[actix::test]
async fn a_start_that_is_stopped_or_deleted_by_someone_else_is_answered() {
    tokio::time::pause();
    for other in [stop("demo"), delete("demo")] {
        let world = FakeWorld::default();
        let root = super::start(&world).await;
        world.component("demo/kine").set_open(false);
        let created = ask(&root, create("demo"));
        until(&root, |_| world.host.pid("demo/kine").is_some()).await;
        root.send(other).await.unwrap().unwrap();
        assert!(conflict(created).await.contains("demo was stopped"));
        assert_eq!(world.host.pid("demo/postgres"), None);
    }
}

#[actix::test]
async fn whoever_waits_for_a_start_is_answered_when_the_daemon_stops() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, |status| status.front.target.is_some()).await;
    world.component("demo/kine").set_open(false);
    let created = ask(&root, create("demo"));
    until(&root, |_| world.host.pid("demo/kine").is_some()).await;
    let awaited = ask(&root, Command::AwaitReady);
    world.stall("put late");
    let late = ask(&root, create("late"));
    until(&root, |_| world.desired("late").is_some()).await;
    root.send(Command::Down).await.unwrap().unwrap();
    world.resume();
    for answer in [created, awaited, late] {
        assert!(conflict(answer).await.contains("stopping"));
    }
    assert_eq!(world.host.live(), [""; 0]);
    root.send(WhenDown).await.unwrap();
}

#[actix::test]
async fn a_tenant_that_is_being_deleted_cannot_be_started_created_or_deleted_again() {
    let world = FakeWorld::default().with_tenant("demo");
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.stall("erase demo");
    let deleted = ask(&root, delete("demo"));
    until(&root, |_| !world.diary.of("erase").is_empty()).await;
    for command in [start("demo"), stop("demo"), delete("demo")] {
        assert!(conflict(ask(&root, command)).await.contains("being deleted"));
    }
    let created = root.send(create("demo")).await.unwrap();
    assert!(matches!(created, Err(Refusal::AlreadyExists(_))), "{created:?}");
    world.resume();
    deleted.await.unwrap().unwrap().unwrap();
    assert_eq!((world.desired("demo"), world.host.pid("demo/postgres")), (None, None));
    root.send(create("demo")).await.unwrap().unwrap();
}

#[actix::test]
async fn a_restart_does_not_undo_a_stop_that_came_after_it() {
    let world = FakeWorld::default().with_tenant("demo");
    world.host.deafen("demo/apiserver");
    let root = started(&world).await;
    until(&root, all_ready).await;
    let restarted = ask(&root, Command::RestartTenant { name: "demo".into() });
    until(&root, |status| tenant(status, "demo").state == ChainState::Stopping).await;
    root.send(stop("demo")).await.unwrap().unwrap();
    assert!(conflict(restarted).await.contains("stopped"));
    assert_eq!(world.host.pid("demo/postgres"), None);
    let stopped = ask(&root, Command::RestartTenant { name: "demo".into() });
    assert!(conflict(stopped).await.contains("berth cluster start"));
}

#[actix::test]
async fn desired_state_is_that_of_the_last_command_however_slow_its_disk() {
    let world = FakeWorld::default().with_tenant("demo");
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.stall("put demo");
    let stopped = ask(&root, stop("demo"));
    until(&root, |_| world.desired("demo") == Some(false)).await;
    let started = ask(&root, start("demo"));
    until(&root, |_| true).await;
    assert_eq!(world.desired("demo"), Some(false), "the second waits for the first");
    world.resume();
    drop(stopped);
    started.await.unwrap().unwrap().unwrap();
    assert_eq!(world.desired("demo"), Some(true));
}

#[actix::test]
async fn a_tenant_that_never_becomes_ready_does_not_hold_up_the_others() {
    let world = ["bad1", "bad2", "good"].into_iter().fold(FakeWorld::default(), FakeWorld::with_tenant);
    for bad in ["bad1", "bad2"] {
        world.component(&format!("{bad}/postgres")).set_open(false);
    }
    let root = started(&world).await;
    until(&root, |status| tenant(status, "good").state == ChainState::Ready).await;
}

#[actix::test]
async fn a_give_up_is_told_with_the_name_of_its_cluster() {
    let world = FakeWorld::default().with_tenant("demo");
    world.component("demo/kine").set_obstacle(Some(PrepareError::Fatal("no binary".into())));
    let root = started(&world).await;
    let answer = root.send(Command::AwaitReady).await.unwrap();
    assert_eq!(answer, Err(Refusal::Failed("demo: kine: no binary".into())));
}

#[actix::test]
async fn a_half_deleted_tenant_is_erased_before_anything_starts() {
    let world = FakeWorld::default().with_half_deleted("gone").with_tenant("demo");
    let root = started(&world).await;
    let status = until(&root, all_ready).await;
    assert_eq!(status.tenants.len(), 1);
    assert_eq!(world.diary.of("erase"), ["gone"]);
    assert!(!world.host.diary.of("spawn").iter().any(|line| line.starts_with("gone/")));
}

#[actix::test]
async fn a_deletion_that_failed_is_never_taken_back_and_can_be_asked_for_again() {
    let world = FakeWorld::default().with_half_deleted("demo");
    world.break_disk(true);
    let root = started(&world).await;
    let start = root.send(Command::StartTenant { name: "demo".into() }).await.unwrap();
    assert!(matches!(start, Err(Refusal::Conflict(_))), "{start:?}");
    world.break_disk(false);
    root.send(Command::DeleteTenant { name: "demo".into() }).await.unwrap().unwrap();
    until(&root, |status| status.tenants.is_empty()).await;
}
