//! The whole tree on a scripted host, with paused time: no process, no socket, no wall clock.

mod adoption;
mod canary;
mod data_adoption;
mod down;
mod handovers;
mod histories;
mod pauses;
mod plans;
mod restores;
mod resumption;
mod strays;
mod tenants;

use super::*;
use crate::fake::FakeWorld;
use crate::handover::{Phase, Record, Wish};
use crate::host::{ExitStatus, PrepareError};
use crate::status::{ChainStatus, ChildState, ChildStatus, TreeStatus};

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
    start(world).await
}

/// The same once time is paused.
async fn start(world: &FakeWorld) -> Addr<Root> {
    let root = Root::new(world.world()).start();
    root.send(Command::Up).await.unwrap().unwrap();
    root
}

/// What a daemon that ended in `phase` left in the journal.
fn recorded(from: SlotName, phase: Phase) -> Record {
    Record { phase, ..Record::new(from, Wish::Plain) }
}

fn handover() -> Command {
    Command::Handover { wish: Wish::Plain }
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

/// Every order is answered with news and every piece of news settles the tree: one order repeated would breed without end.
#[actix::test]
async fn down_gives_each_of_many_tenants_one_order() {
    let names = ["a1", "a2", "a3", "a4"];
    let world = names.into_iter().fold(FakeWorld::default(), FakeWorld::with_tenant);
    for name in names {
        world.host.deafen(&format!("{name}/apiserver"));
    }
    let root = started(&world).await;
    until(&root, all_ready).await;
    root.send(Command::Down).await.unwrap().unwrap();
    assert_eq!(world.host.diary.of("signal").iter().filter(|line| line.starts_with("a1/")).count(), 3);
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
async fn a_kine_gets_its_port_back_even_after_a_start_that_never_listened() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    let status = until(&root, all_ready).await;
    let address = status.slots[0].children[0].address;
    world.host.silence("slot-a/kine", true);
    for _ in 0..2 {
        let pid = world.host.pid("slot-a/kine").unwrap();
        world.host.exit(pid, ExitStatus::Code(1));
        until(&root, |_| world.host.pid("slot-a/kine").is_some_and(|new| new != pid)).await;
    }
    assert_eq!(world.component("slot-a/kine").previous_addresses(), [None, address, address]);
}

#[actix::test]
async fn a_start_without_a_process_shows_no_last_words_and_what_it_waits_for_is_this_starts_own() {
    let world = FakeWorld::default().with_tenant("demo");
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.component("demo/kine").set_obstacle(Some(PrepareError::Fatal("no binary".into())));
    world.host.exit(world.host.pid("demo/kine").unwrap(), ExitStatus::Code(1));
    let status = until(&root, |status| tenant(status, "demo").state == ChainState::Degraded).await;
    let kine = &tenant(&status, "demo").children[1];
    assert_eq!(kine.last_failure.as_deref(), Some("no binary"));
    assert_eq!(kine.log_tail, [""; 0], "these are the words of another life");
    assert_eq!(kine.log.as_deref(), Some("/fake.log"));

    world.component("demo/kine").set_obstacle(None);
    world.host.silence("demo/kine", true);
    let retry = tokio::spawn(root.send(Command::RetryTenant { name: "demo".into() }));
    let status = until(&root, |status| tenant(status, "demo").children[1].pid.is_some()).await;
    assert_eq!(tenant(&status, "demo").children[1].waits_for.as_deref(), Some("its TCP port"));
    world.host.silence("demo/kine", false);
    retry.await.unwrap().unwrap().unwrap();
}

/// Paused time moves by itself only when nobody has anything to do: a tree that talks to itself would never arrive.
#[actix::test]
async fn a_tree_that_waits_for_slow_stops_is_silent() {
    let world = FakeWorld::default().with_tenant("one").with_tenant("two");
    for slow in ["one/postgres", "two/postgres"] {
        world.host.deafen(slow);
    }
    let root = started(&world).await;
    until(&root, all_ready).await;
    root.send(Command::Down).await.unwrap().unwrap();
    assert_eq!(world.host.live(), [""; 0]);
}

#[actix::test]
async fn a_slot_that_gave_up_is_told_and_can_be_retried() {
    let world = FakeWorld::default();
    world.component("slot-a/kcp").set_obstacle(Some(PrepareError::Fatal("no binary".into())));
    let root = started(&world).await;
    let answer = root.send(Command::AwaitReady).await.unwrap();
    assert_eq!(answer, Err(Refusal::Failed("slot-a: kcp: no binary".into())));
    world.component("slot-a/kcp").set_obstacle(None);
    root.send(Command::RetryTenant { name: "slot-a".into() }).await.unwrap().unwrap();
    until(&root, all_ready).await;
}

#[actix::test]
async fn a_daemon_comes_up_once_and_goes_down_once() {
    let world = FakeWorld::default().with_tenant("demo");
    let root = started(&world).await;
    until(&root, all_ready).await;
    root.send(Command::Up).await.unwrap().unwrap();
    world.host.exit(world.host.pid("demo/kine").unwrap(), ExitStatus::Code(1));
    let down = tokio::spawn(root.send(Command::Down));
    let up = root.send(Command::Up).await.unwrap();
    assert!(matches!(up, Err(Refusal::Conflict(_))), "two trees on one estate: {up:?}");
    down.await.unwrap().unwrap().unwrap();
    root.send(Command::Down).await.unwrap().unwrap();
    assert_eq!((world.host.live(), world.host.diary.of("twice")), (vec![], vec![]));
}

#[actix::test]
async fn a_down_during_the_load_leaves_everything_down() {
    tokio::time::pause();
    let record = recorded(SlotName::A, Phase::Drained);
    let world = FakeWorld::default().with_tenant("demo").with_record(record);
    world.stall("journal read");
    let root = Root::new(world.world()).start();
    let up = tokio::spawn(root.send(Command::Up));
    tokio::time::advance(Duration::from_millis(1)).await;
    let down = tokio::spawn(root.send(Command::Down));
    tokio::time::advance(Duration::from_millis(1)).await;
    world.resume();
    let up = up.await.unwrap().unwrap();
    assert!(matches!(up, Err(Refusal::Conflict(_))), "{up:?}");
    down.await.unwrap().unwrap().unwrap();
    assert_eq!(world.host.diary.of("spawn"), [""; 0]);
}

#[actix::test]
async fn the_front_tells_where_it_goes() {
    let world = FakeWorld::default();
    let outside = world.world();
    let mut events = outside.outside.events.subscribe();
    tokio::time::pause();
    let root = Root::new(outside).start();
    root.send(Command::Up).await.unwrap().unwrap();
    until(&root, all_ready).await;
    let told = std::iter::from_fn(|| events.try_recv().ok()).find(|event| event.subject == "front");
    assert!(told.unwrap().what.starts_with("serves slot a at 127.0.0.1:"));
}
