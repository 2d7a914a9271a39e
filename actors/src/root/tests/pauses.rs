//! Clusters that are held down, across commands and daemons; and what a backup keeps others from.

use super::*;
use crate::host::TenantRecord;

fn pause(name: &str) -> Command {
    Command::PauseTenant { name: name.into(), at: "2026-01-02T03:04:05Z".into() }
}

fn resume(name: &str) -> Command {
    Command::ResumeTenant { name: name.into() }
}

async fn done(root: &Addr<Root>, command: Command) {
    assert_eq!(root.send(command).await.unwrap(), Ok(Reply::Done));
}

async fn conflict(root: &Addr<Root>, command: Command) -> String {
    match root.send(command.clone()).await.unwrap() {
        Err(Refusal::Conflict(why)) => why,
        other => panic!("{command:?}: {other:?}"),
    }
}

#[actix::test]
async fn a_paused_cluster_is_stopped_in_order_and_stays_down_until_it_is_resumed() {
    let world = FakeWorld::default().with_tenant("demo").with_tenant("other");
    let root = started(&world).await;
    until(&root, all_ready).await;
    done(&root, pause("demo")).await;
    let stopped = world.host.diary.of("signal");
    assert_eq!(stopped, ["demo/apiserver Term", "demo/kine Term", "demo/postgres Term"]);
    let later = Command::PauseTenant { name: "demo".into(), at: "2027-01-01T00:00:00Z".into() };
    done(&root, later).await;
    let status = until(&root, |_| true).await;
    let demo = tenant(&status, "demo");
    assert_eq!((demo.state, demo.paused.as_deref()), (ChainState::Down, Some("2026-01-02T03:04:05Z")));
    assert_eq!(tenant(&status, "other").state, ChainState::Ready);
    for command in
        [Command::StartTenant { name: "demo".into() }, Command::RestartTenant { name: "demo".into() }]
    {
        let why = conflict(&root, command).await;
        assert_eq!(
            why,
            "demo is paused since 2026-01-02T03:04:05Z: berth cluster resume demo brings it back"
        );
    }
    done(&root, resume("demo")).await;
    done(&root, resume("demo")).await;
    let status = until(&root, all_ready).await;
    assert_eq!(tenant(&status, "demo").paused, None);
}

#[actix::test]
async fn the_next_daemon_starts_no_paused_cluster_and_resumes_it_when_told() {
    let world = FakeWorld::default().with_tenant("demo");
    let at = Some("2026-01-02T03:04:05Z".to_owned());
    world.set_record(TenantRecord { paused: at.clone(), ..world.tenant_record("demo").unwrap() });
    let root = started(&world).await;
    root.send(Command::AwaitReady).await.unwrap().unwrap();
    assert!(!world.host.diary.of("spawn").iter().any(|line| line.starts_with("demo/")));
    let status = until(&root, |_| true).await;
    assert_eq!(tenant(&status, "demo").paused, at);
    done(&root, resume("demo")).await;
    until(&root, all_ready).await;
}

#[actix::test]
async fn a_stop_ends_a_pause_and_a_stopped_cluster_is_neither_paused_nor_resumed() {
    let world = FakeWorld::default().with_tenant("demo");
    let root = started(&world).await;
    until(&root, all_ready).await;
    done(&root, pause("demo")).await;
    done(&root, Command::StopTenant { name: "demo".into() }).await;
    assert_eq!(tenant(&until(&root, |_| true).await, "demo").paused, None);
    assert!(conflict(&root, pause("demo")).await.contains("nothing to pause"));
    assert!(conflict(&root, resume("demo")).await.contains("berth cluster start demo"));
    done(&root, Command::StartTenant { name: "demo".into() }).await;
}

#[actix::test]
async fn what_does_not_exist_is_neither_paused_nor_backed_up() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    for command in [pause("none"), resume("none"), Command::BeginBackup { name: "none".into() }] {
        let answer = root.send(command).await.unwrap();
        assert!(matches!(answer, Err(Refusal::NotFound(_))), "{answer:?}");
    }
}

#[actix::test]
async fn while_a_backup_is_taken_nothing_stops_its_cluster_and_one_that_is_down_has_none() {
    let world = FakeWorld::default().with_tenant("demo");
    let root = started(&world).await;
    until(&root, all_ready).await;
    let (begin, end) =
        (|| Command::BeginBackup { name: "demo".into() }, || Command::EndBackup { name: "demo".into() });
    done(&root, begin()).await;
    for command in [
        begin(),
        pause("demo"),
        Command::StopTenant { name: "demo".into() },
        Command::RestartTenant { name: "demo".into() },
        Command::DeleteTenant { name: "demo".into() },
    ] {
        assert!(conflict(&root, command).await.contains("being backed up"));
    }
    done(&root, end()).await;
    done(&root, pause("demo")).await;
    assert!(conflict(&root, begin()).await.contains("demo is paused"));
    done(&root, Command::StopTenant { name: "demo".into() }).await;
    assert!(conflict(&root, begin()).await.contains("demo is stopped"));
}
