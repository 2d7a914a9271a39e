//! A process of an earlier daemon that even SIGKILL does not end holds up its own component, and nothing else.

use super::*;
use tokio::sync::broadcast;

/// A daemon of `demo` and `other` is dead, and so is `demo`'s kine; what is left of that one outlives SIGKILL.
async fn left_behind() -> FakeWorld {
    tokio::time::pause();
    let world = FakeWorld::default().with_tenant("demo").with_tenant("other");
    let root = start(&world).await;
    root.send(Command::AwaitReady).await.unwrap().unwrap();
    world.host.stick("demo/kine", true);
    let next = world.after_a_crash();
    next.host.abandon("demo/kine");
    next
}

async fn watched(world: &FakeWorld) -> (Addr<Root>, broadcast::Receiver<TreeEvent>) {
    let world = world.world();
    let events = world.outside.events.subscribe();
    let root = Root::new(world).start();
    root.send(Command::Up).await.unwrap().unwrap();
    (root, events)
}

fn kine(status: &TreeStatus) -> &ChildStatus {
    &tenant(status, "demo").children[1]
}

#[actix::test]
async fn the_daemon_starts_and_names_the_one_that_cannot_be_ended() {
    let world = left_behind().await;
    let (stray, births) = (world.host.pid("demo/kine").unwrap(), world.host.diary.of("spawn").len());
    let (root, mut events) = watched(&world).await;
    let blocked = |status: &TreeStatus| tenant(status, "demo").reason.is_some();
    let status = until(&root, blocked).await;
    let why = format!("fake (pid {stray}) of an earlier daemon outlives SIGKILL");
    assert_eq!(status.strays, [format!("demo/kine: {why}")]);
    assert_eq!(tenant(&status, "demo").reason, Some(format!("kine: {why}")));
    assert_eq!(
        (kine(&status).state, kine(&status).waits_for.as_deref()),
        (ChildState::Starting, Some(&*why))
    );
    until(&root, |status| tenant(status, "other").state == ChainState::Ready).await;
    tokio::time::advance(Duration::from_secs(600)).await;
    assert_eq!(world.host.diary.of("spawn").len(), births, "nothing starts beside it, however long it takes");
    let told: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    assert!(told.iter().any(|event| event.subject == "demo/kine" && event.what == why), "{told:?}");
    let left = root.send(Command::Down).await.unwrap().unwrap_err().to_string();
    assert!(left.contains(&format!("everything is stopped, but for demo/kine: {why}")), "{left}");
}

#[actix::test]
async fn its_component_starts_by_itself_once_it_has_ended() {
    let world = left_behind().await;
    let (root, mut events) = watched(&world).await;
    until(&root, |status| tenant(status, "demo").reason.is_some()).await;
    world.host.stick("demo/kine", false);
    root.send(Command::AwaitReady).await.unwrap().unwrap();
    let status = until(&root, all_ready).await;
    assert_eq!((status.strays.len(), kine(&status).restarts), (0, 0));
    let told: Vec<_> = std::iter::from_fn(|| events.try_recv().ok()).collect();
    assert!(told.iter().any(|event| event.what.ends_with("of an earlier daemon has ended")), "{told:?}");
    assert_eq!(world.host.diary.of("twice"), [""; 0]);
}

#[actix::test]
async fn a_cluster_that_waits_for_one_is_stopped_at_once_and_started_again() {
    let world = left_behind().await;
    let root = start(&world).await;
    until(&root, |status| tenant(status, "demo").reason.is_some()).await;
    root.send(Command::StopTenant { name: "demo".into() }).await.unwrap().unwrap();
    let start = tokio::spawn(root.send(Command::StartTenant { name: "demo".into() }));
    until(&root, |status| tenant(status, "demo").reason.is_some()).await;
    world.host.stick("demo/kine", false);
    start.await.unwrap().unwrap().unwrap();
    assert_eq!(world.host.diary.of("twice"), [""; 0]);
}
