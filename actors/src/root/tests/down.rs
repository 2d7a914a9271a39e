//! Everything goes down within a bound, whatever hangs; and a stop that failed goes on where it failed.

use super::*;
use tokio::time::Instant;

/// Every fake step has 5 s, and as long to be reaped: three of a tenant, two of a slot, one of the store.
const BOUND: Duration = Duration::from_secs(60);

fn stopped(world: &FakeWorld) -> Vec<String> {
    world.host.diary.of("signal").iter().map(|line| line.replace(" Term", "")).collect()
}

#[actix::test]
async fn a_component_that_cannot_be_ended_holds_up_its_own_chain_alone_and_is_named() {
    let world = FakeWorld::default().with_tenant("demo").with_tenant("other");
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.host.stick("demo/kine", true);
    let begun = Instant::now();
    let Err(Refusal::Failed(why)) = root.send(Command::Down).await.unwrap() else { panic!("it is alive") };
    assert_eq!(begun.elapsed().as_secs(), BOUND.as_secs());
    let pid = world.host.pid("demo/kine").unwrap();
    assert!(why.contains("after 60 s: "), "{why}");
    assert!(
        why.contains(&format!("demo/kine (pid {pid}) waits for the end of its last process: still alive")),
        "{why}"
    );
    assert!(why.contains("demo/postgres"), "it stands below and was not stopped: {why}");
    assert_eq!(world.host.live(), ["demo/postgres", "demo/kine"]);
    root.send(WhenDown).await.unwrap();
    assert!(root.send(Command::Down).await.unwrap().is_err(), "a second order has nothing more to wait for");

    world.host.stick("demo/kine", false);
    until(&root, |status| tenant(status, "demo").state == ChainState::Down).await;
    assert_eq!(root.send(Command::Down).await.unwrap(), Ok(Reply::Done));
    assert_eq!(world.host.live(), [""; 0]);
}

#[actix::test]
async fn slow_tenants_are_stopped_together() {
    let names = ["a1", "a2", "a3"];
    let world = names.into_iter().fold(FakeWorld::default(), FakeWorld::with_tenant);
    for name in names {
        for step in ["postgres", "kine", "apiserver"] {
            world.host.deafen(&format!("{name}/{step}"));
        }
    }
    let root = started(&world).await;
    until(&root, all_ready).await;
    let begun = Instant::now();
    root.send(Command::Down).await.unwrap().unwrap();
    assert_eq!(begun.elapsed().as_secs(), 15, "each of three steps at its deadline, all tenants at once");
}

#[actix::test]
async fn a_failed_stop_blocks_the_next_start_and_goes_on_at_the_step_where_it_failed() {
    let world = FakeWorld::default().with_tenant("demo");
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.host.stick("demo/kine", true);
    let stop = tokio::spawn(root.send(Command::StopTenant { name: "demo".into() }));
    let stuck = |status: &TreeStatus| tenant(status, "demo").reason.is_some();
    let status = until(&root, stuck).await;
    let demo = tenant(&status, "demo");
    assert_eq!(demo.state, ChainState::Stopping);
    assert!(demo.reason.as_ref().unwrap().starts_with("kine: still alive 5s after SIGKILL"), "{demo:?}");
    let waits = demo.children[1].waits_for.as_ref().unwrap();
    assert!(waits.starts_with("the end of its last process: still alive"), "{waits}");
    assert_eq!(stopped(&world), ["demo/apiserver", "demo/kine"]);

    let start = tokio::spawn(root.send(Command::StartTenant { name: "demo".into() }));
    let births = world.host.diary.of("spawn").len();
    until(&root, |status| tenant(status, "demo").state == ChainState::Starting).await;
    tokio::time::advance(Duration::from_secs(30)).await;
    assert_eq!(world.host.diary.of("spawn").len(), births, "nothing starts over what cannot be ended");

    drop(stop.await.unwrap());
    let stop = tokio::spawn(root.send(Command::StopTenant { name: "demo".into() }));
    world.host.stick("demo/kine", false);
    stop.await.unwrap().unwrap().unwrap();
    assert!(start.await.unwrap().unwrap().is_err(), "another command overruled it");
    assert_eq!(stopped(&world), ["demo/apiserver", "demo/kine", "demo/postgres"], "nothing is asked twice");
}
