//! A daemon ends in the middle of a handover, and the next one goes on with it.

use super::handovers::{PHASES, assert_one_slot, over, stopped_after};
use super::*;
use crate::status::HandoverOutcome;
use proptest::prelude::*;

/// The daemon dies; its processes live on, and another daemon starts.
async fn next_daemon(world: &FakeWorld) -> (FakeWorld, Addr<Root>) {
    let world = world.after_a_crash();
    let root = start(&world).await;
    (world, root)
}

#[actix::test]
async fn a_handover_goes_on_by_itself_from_any_phase_a_daemon_was_killed_in() {
    tokio::time::pause();
    for phase in &PHASES[..8] {
        let (dead, _root) = stopped_after(*phase).await;
        let active = dead.record().unwrap().active();
        let serving = format!("{}/kcp", active.chain());
        let kept = dead.host.pid(&serving);
        let (world, root) = next_daemon(&dead).await;
        let status = until(&root, over).await;
        assert_one_slot(&world, &status);
        let handover = status.handover.unwrap();
        let forward = active == SlotName::B;
        assert_eq!(handover.outcome == HandoverOutcome::Done, forward, "{phase}: {handover:?}");
        assert_eq!(handover.resumed, [*phase]);
        assert_eq!(world.host.pid(&serving), kept, "{phase}: the slot that serves is not touched");
        assert_eq!(world.past().len(), 1, "{phase}");
        let reached: Vec<_> = handover.phases.iter().map(|reached| reached.phase.as_str()).collect();
        if forward {
            let rest = ["old-gone", "lease-released", "done"];
            assert_eq!(reached[reached.len() - 3..], rest, "{phase}: through all that was left");
            assert_eq!(world.diary.of("delete-lease"), ["host_a"], "{phase}");
        } else {
            assert_eq!(reached.last(), Some(&"rolled-back"), "{phase}");
            assert_eq!(world.diary.of("delete-lease"), [""; 0], "{phase}");
        }
        assert_eq!(world.diary.of("under-a-leader"), [""; 0], "{phase}");
    }
}

#[actix::test]
async fn the_old_slot_stays_until_the_new_one_was_seen_to_serve_again() {
    tokio::time::pause();
    for phase in [Phase::Retargeted, Phase::Drained] {
        let (dead, _root) = stopped_after(phase).await;
        let old = dead.host.pid("slot-a/kcp");
        dead.component("slot-b/kcp").set_open(false);
        let (world, root) = next_daemon(&dead).await;
        tokio::time::advance(Duration::from_secs(30)).await;
        until(&root, |status| status.handover.is_some()).await;
        assert_eq!(world.host.pid("slot-a/kcp"), old, "{phase}");
        let again = root.send(handover()).await.unwrap();
        let Err(Refusal::Conflict(why)) = again else { panic!("{again:?}") };
        assert!(
            why.starts_with("a handover of an earlier daemon is under way already (slot a to b"),
            "{why}"
        );
        world.component("slot-b/kcp").set_open(true);
        let status = until(&root, over).await;
        assert_one_slot(&world, &status);
        assert_eq!(status.active_slot, Some(SlotName::B));
    }
}

/// The front was on it, or was about to be; both serve one store.
#[actix::test]
async fn a_new_slot_that_cannot_be_had_again_gives_way_to_an_old_one_that_serves() {
    tokio::time::pause();
    let (dead, _root) = stopped_after(Phase::Retargeted).await;
    let old = dead.host.pid("slot-a/kcp");
    dead.component("slot-b/kcp").set_obstacle(Some(PrepareError::Fatal("no binary".into())));
    dead.host.exit(dead.host.pid("slot-b/kcp").unwrap(), ExitStatus::Signal(9));
    let (world, root) = next_daemon(&dead).await;
    let status = until(&root, over).await;
    assert_one_slot(&world, &status);
    let HandoverOutcome::RolledBack(reason) = status.handover.unwrap().outcome else { panic!("done") };
    assert!(reason.contains("slot b: kcp: no binary"), "{reason}");
    assert_eq!((status.active_slot, world.host.pid("slot-a/kcp")), (Some(SlotName::A), old));
    assert_eq!(world.diary.of("promote").last().map(String::as_str), Some("a"));
}

#[actix::test]
async fn a_host_that_went_down_in_a_handover_comes_up_on_one_slot_and_closes_it() {
    tokio::time::pause();
    for phase in &PHASES[..8] {
        let (dead, _root) = stopped_after(*phase).await;
        let record = dead.record().unwrap();
        let world = FakeWorld::default().with_record(record.clone());
        world.set_lease("host_a");
        let root = start(&world).await;
        let status = until(&root, |status| over(status) && all_ready(status)).await;
        assert_eq!(status.active_slot, Some(record.active()), "{phase}");
        assert_one_slot(&world, &status);
        assert_eq!(world.diary.of("under-a-leader"), [""; 0], "{phase}");
    }
}

#[actix::test]
async fn a_handover_that_ended_with_its_daemon_still_takes_its_place_in_the_history_once() {
    tokio::time::pause();
    let (dead, _root) = stopped_after(Phase::Done).await;
    assert_eq!(dead.past(), []);
    let (world, root) = next_daemon(&dead).await;
    root.send(Command::AwaitReady).await.unwrap().unwrap();
    let (world, root) = next_daemon(&world).await;
    root.send(Command::AwaitReady).await.unwrap().unwrap();
    let past = world.past();
    assert_eq!((past.len(), past[0].phase), (1, Phase::Done));
}

/// One life of a daemon: how it ends, and what happens to its processes before the next one starts.
#[derive(Debug, Clone)]
struct Death {
    /// After this phase was journalled, if it comes to that.
    phase: Option<usize>,
    /// Else after this many turns.
    turns: usize,
    victims: Vec<usize>,
    lease: Option<&'static str>,
}

fn death() -> impl Strategy<Value = Death> {
    let phase = prop::option::of(0usize..9);
    let victims = prop::collection::vec(0usize..5, 0..3);
    let lease = prop::sample::select(vec![None, Some("host_a"), Some("host_b"), Some("host_dead"), Some("")]);
    (phase, 0usize..400, victims, lease).prop_map(|(phase, turns, victims, lease)| Death {
        phase,
        turns,
        victims,
        lease,
    })
}

const VICTIMS: [&str; 5] = ["slot-a/kine", "slot-a/kcp", "slot-b/kine", "slot-b/kcp", "kcp-store/postgres"];

async fn live_on(deaths: Vec<Death>) {
    tokio::time::pause();
    let mut world = FakeWorld::default();
    let mut root = start(&world).await;
    until(&root, all_ready).await;
    root.do_send(handover());
    for death in deaths {
        match death.phase {
            Some(phase) => {
                world.stall(&format!("journal {}", PHASES[phase]));
                for _ in 0..400 {
                    if world.record().is_some_and(|record| record.phase == PHASES[phase]) {
                        break;
                    }
                    tokio::time::advance(Duration::from_millis(20)).await;
                }
            }
            None => {
                for _ in 0..death.turns {
                    tokio::time::advance(Duration::from_millis(5)).await;
                }
            }
        }
        world = world.after_a_crash();
        for victim in death.victims {
            if let Some(pid) = world.host.pid(VICTIMS[victim]) {
                world.host.exit(pid, ExitStatus::Signal(9));
            }
        }
        match death.lease {
            Some("") => world.drop_lease(),
            Some(holder) => world.set_lease(holder),
            None => {}
        }
        root = Root::new(world.world()).start();
        root.do_send(Command::Up);
    }
    let settled = |status: &TreeStatus| {
        let idle = |chain: &ChainStatus| matches!(chain.state, ChainState::Ready | ChainState::Down);
        all_ready(status)
            && status.slots.iter().all(idle)
            && status.handover.as_ref().is_none_or(|_| over(status))
    };
    // Longer than any wait on the lease.
    tokio::time::advance(Duration::from_secs(100)).await;
    let status = until(&root, settled).await;
    let active = status.active_slot.unwrap();
    let live = world.host.live();
    let of = |slot: SlotName| live.iter().filter(|name| name.starts_with(slot.chain())).count();
    assert_eq!((of(active), of(active.other())), (2, 0), "{live:?}");
    assert_eq!(world.target(), Some(active));
    assert!(world.record().is_none_or(|record| record.phase.is_over() && record.active() == active));
    assert_eq!(world.host.diary.of("twice"), [""; 0]);
    assert_eq!(world.diary.of("under-a-leader"), [""; 0]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn wherever_daemons_and_slots_die_one_slot_serves_in_the_end_and_no_leader_loses_its_lease(
        deaths in prop::collection::vec(death(), 1..4)
    ) {
        actix_rt::System::new().block_on(live_on(deaths));
    }
}
