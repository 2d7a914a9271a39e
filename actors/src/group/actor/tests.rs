//! A group of services on a scripted host, with paused time: its way down, whatever hangs.

use super::*;
use crate::fake::{FakeComponent, FakeHost, step};
use tokio::sync::broadcast;
use tokio::time::Instant;

/// The stop deadline of a fake step, and as long to be reaped.
const STOP: Duration = Duration::from_secs(10);

async fn started(host: &FakeHost, names: &[&str]) -> Addr<GroupActor> {
    tokio::time::pause();
    let (events, _) = broadcast::channel(16);
    let outside = Outside { processes: Arc::new(host.clone()), listeners: Arc::new(host.clone()), events };
    let member = |name: &&str| Member {
        name: (*name).to_owned(),
        steps: vec![step("main", &FakeComponent::new())],
        after: Vec::new(),
    };
    let group = GroupActor::new(names.iter().map(member).collect(), outside).unwrap().start();
    group.send(Command::Up).await.unwrap().unwrap();
    group.send(Command::AwaitReady).await.unwrap().unwrap();
    group
}

fn stopped(host: &FakeHost) -> Vec<String> {
    host.diary.of("signal").iter().map(|line| line.replace("/main Term", "")).collect()
}

#[actix::test]
async fn a_service_that_cannot_be_ended_is_named_after_its_time_and_the_others_are_stopped() {
    let host = FakeHost::default();
    let group = started(&host, &["db", "web", "lone"]).await;
    host.stick("web/main", true);
    let begun = Instant::now();
    let Err(Refusal::Failed(why)) = group.send(Command::Down).await.unwrap() else { panic!("it is alive") };
    assert_eq!(begun.elapsed().as_secs(), STOP.as_secs());
    let pid = host.pid("web/main").unwrap();
    let left = format!(
        "not everything is stopped after 10 s: web/main (pid {pid}) waits for the end of its last process"
    );
    assert!(why.starts_with(&left), "{why}");
    assert_eq!(host.live(), ["web/main"]);
    assert_eq!(stopped(&host), ["lone", "web", "db"]);
    group.send(WhenDown).await.unwrap();
    assert!(group.send(Command::Down).await.unwrap().is_err(), "a second order has nothing more to wait for");
}

#[actix::test]
async fn what_ends_after_its_time_makes_a_later_order_succeed() {
    let host = FakeHost::default();
    let group = started(&host, &["db", "web"]).await;
    host.stick("web/main", true);
    group.send(Command::Down).await.unwrap().unwrap_err();
    host.stick("web/main", false);
    let mut arrival = group.send(Command::Down).await.unwrap();
    for _ in 0..6000 {
        if arrival.is_ok() {
            break;
        }
        tokio::time::advance(Duration::from_millis(10)).await;
        arrival = group.send(Command::Down).await.unwrap();
    }
    assert_eq!(arrival, Ok(Reply::Done));
    assert_eq!(host.live(), [""; 0]);
}

#[actix::test]
async fn one_that_was_being_stopped_already_has_its_time_too() {
    let host = FakeHost::default();
    let group = started(&host, &["db", "web"]).await;
    host.stick("web/main", true);
    let order = Command::Service { name: "web".to_owned(), order: ServiceOrder::Stop };
    let stop = tokio::spawn(group.send(order));
    for _ in 0..6000 {
        if stopped(&host) == ["web"] {
            break;
        }
        tokio::time::advance(Duration::from_millis(10)).await;
    }
    let begun = Instant::now();
    group.send(Command::Down).await.unwrap().unwrap_err();
    assert_eq!(begun.elapsed().as_secs(), STOP.as_secs());
    assert_eq!(host.live(), ["web/main"]);
    stop.abort();
}

#[actix::test]
async fn slow_ones_are_waited_for_one_at_a_time() {
    let host = FakeHost::default();
    for name in ["db/main", "web/main"] {
        host.deafen(name);
    }
    let group = started(&host, &["db", "web"]).await;
    let begun = Instant::now();
    group.send(Command::Down).await.unwrap().unwrap();
    assert_eq!(begun.elapsed().as_secs(), STOP.as_secs(), "each at its own deadline");
    assert_eq!(stopped(&host), ["web", "db"]);
}
