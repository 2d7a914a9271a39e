//! The canary of the serving slot: it flies, restarts a kine whose watches have stalled, and stays at home when it would
//! only tell of an outage that everybody knows of.

use super::*;
use crate::canary::Cadence;
use crate::host::NoPulse;
use crate::status::{CanaryState, ChildState};

const CADENCE: Cadence = Cadence { interval: Duration::from_secs(20), deadline: Duration::from_secs(4) };

fn state(status: &TreeStatus) -> CanaryState {
    status.canary.as_ref().map(|canary| canary.state.clone()).expect("this world has a canary")
}

#[actix::test]
async fn it_flies_once_an_interval_and_the_status_says_what_it_saw() {
    let world = FakeWorld::default().with_canary(CADENCE);
    let root = started(&world).await;
    let status = until(&root, all_ready).await;
    assert_eq!((state(&status), world.diary.of("pulse").len()), (CanaryState::Waiting, 0));
    let status = until(&root, |status| state(status) != CanaryState::Waiting).await;
    assert_eq!(state(&status), CanaryState::Seen { took_ms: 4 });
    tokio::time::sleep(3 * CADENCE.interval).await;
    let flights = world.diary.of("pulse").len();
    assert!((3..=4).contains(&flights), "{flights}");
}

#[actix::test]
async fn stalled_watches_cost_the_slot_its_kine_and_nothing_else() {
    let world = FakeWorld::default().with_canary(CADENCE);
    let root = started(&world).await;
    let before = until(&root, all_ready).await;
    let (kine, kcp) = (world.host.pid("slot-a/kine"), world.host.pid("slot-a/kcp"));
    let address = before.slots[0].children[0].address;
    world.set_pulse(Err(NoPulse::Silent));
    until(&root, |_| world.host.pid("slot-a/kine") != kine).await;
    assert_eq!(world.host.diary.of("signal"), ["slot-a/kine Kill"]);
    assert_ne!(world.host.pid("slot-a/kine"), kine);
    assert_eq!(world.host.pid("slot-a/kcp"), kcp, "it rides through");
    assert_eq!(world.component("slot-a/kine").previous_addresses().last(), Some(&address));

    world.set_pulse(Ok(Duration::from_millis(3)));
    let status = until(&root, |status| state(status) == CanaryState::Seen { took_ms: 3 }).await;
    assert_eq!(status.slots[0].children[0].state, ChildState::Ready);
    assert_eq!(world.host.diary.of("signal").len(), 1);
}

#[actix::test]
async fn an_outage_of_the_store_is_no_stall_and_ends_the_kine_on_it_once() {
    let world = FakeWorld::default().with_canary(CADENCE);
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.set_pulse(Err(NoPulse::Silent));
    world.component("kcp-store/postgres").set_open(false);
    let postgres = world.host.pid("kcp-store/postgres").unwrap();
    // It dies while the canary is in the air.
    tokio::time::sleep(CADENCE.interval + CADENCE.deadline / 2).await;
    world.host.exit(postgres, ExitStatus::Signal(9));
    let status = until(&root, |status| matches!(state(status), CanaryState::Home(_))).await;
    assert_eq!(state(&status), CanaryState::Home("the store is not ready".into()));
    let flights = world.diary.of("pulse").len();
    tokio::time::sleep(CADENCE.interval).await;
    assert_eq!(world.diary.of("pulse").len(), flights);
    assert_eq!(world.host.diary.of("signal"), ["slot-a/kine Kill"]);
}

#[actix::test]
async fn an_api_that_cannot_be_asked_restarts_no_kine() {
    let world = FakeWorld::default().with_canary(CADENCE);
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.set_pulse(Err(NoPulse::Unasked("HTTP 500".into())));
    until(&root, |status| state(status) == CanaryState::Unasked("HTTP 500".into())).await;
    tokio::time::sleep(5 * CADENCE.interval).await;
    assert_eq!(world.host.diary.of("signal"), [""; 0]);
}
