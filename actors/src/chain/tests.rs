//! Sentences about one chain, and its properties under random histories.

use super::*;
use crate::fake::{FakeComponent, FakeGuard, step};
use proptest::prelude::*;
use std::sync::Arc;

const RIDE: Reaction = Reaction::RideThrough(Duration::from_secs(20));
const READY: Life = Life::Ready { took: None };

/// postgres, kine, apiserver, kcm, ccm with the reactions real components have.
pub(super) fn tenant() -> Vec<Step> {
    let component = FakeComponent::new();
    let mut steps: Vec<_> =
        ["postgres", "kine", "apiserver", "kcm", "ccm"].iter().map(|name| step(name, &component)).collect();
    let mut ride = |index: usize, earlier: &[&str]| {
        steps[index].reactions = earlier.iter().map(|name| ((*name).to_owned(), RIDE)).collect();
    };
    ride(1, &["postgres"]);
    ride(2, &["postgres", "kine"]);
    ride(3, &["postgres", "kine"]);
    ride(4, &["postgres", "kine", "apiserver", "kcm"]);
    steps
}

fn ready(index: usize) -> Event {
    Event::Child { index, life: READY }
}

fn child(index: usize, life: Life) -> Event {
    Event::Child { index, life }
}

fn dead(index: usize) -> Event {
    child(index, Life::Dead { failure: "killed by signal 9".into() })
}

/// Effects on children, as short words.
fn orders(effects: &[Effect]) -> Vec<String> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Start(index) => Some(format!("start {index}")),
            Effect::Stop(index) => Some(format!("stop {index}")),
            Effect::Recheck(index, _) => Some(format!("recheck {index}")),
            _ => None,
        })
        .collect()
}

#[test]
fn a_step_that_is_to_restart_stops_behind_those_that_follow_it_and_starts_before_them() {
    let mut chain = running();
    assert_eq!(orders(&chain.step(Event::Restart(2))), ["stop 3"]);
    assert_eq!(chain.state().0, ChainState::Recovering);
    assert_eq!(orders(&chain.step(child(3, Life::Down))), ["stop 2"]);
    assert_eq!(orders(&chain.step(child(2, Life::Down))), ["start 2"]);
    assert_eq!(orders(&chain.step(ready(2))), ["start 3"]);
    assert_eq!(orders(&chain.step(ready(3))), ["recheck 4"]);
    chain.step(ready(4));
    assert_eq!(chain.state().0, ChainState::Ready);
}

#[test]
fn a_step_that_is_not_ready_is_not_restarted_by_order() {
    let mut chain = running();
    chain.step(dead(2));
    assert_eq!(orders(&chain.step(Event::Restart(2))), [""; 0]);
    chain.step(Event::Down);
    assert_eq!(orders(&chain.step(Event::Restart(0))), [""; 0]);
}

fn running() -> Chain {
    let mut chain = Chain::new(&tenant()).unwrap();
    assert_eq!(orders(&chain.step(Event::Up)), ["start 0"]);
    for index in 0..4 {
        assert_eq!(orders(&chain.step(ready(index))), [format!("start {}", index + 1)]);
    }
    let effects = chain.step(ready(4));
    assert_eq!(effects, [Effect::Became { state: ChainState::Ready, reason: None }]);
    chain
}

#[test]
fn a_kubernetes_step_without_a_guard_cannot_be_built() {
    let mut steps = tenant();
    steps[2].role = Role::Kubernetes;
    let error = Chain::new(&steps).unwrap_err();
    assert!(error.to_string().contains("ErrNoGuardSeam"), "{error}");
    steps[2].seam = Seam::Guarded(Arc::new(FakeGuard::default()));
    assert!(Chain::new(&steps).is_ok());
}

#[test]
fn steps_stop_in_exact_reverse_one_at_a_time() {
    let mut chain = running();
    assert_eq!(orders(&chain.step(Event::Down)), ["stop 4"]);
    for index in (1..5).rev() {
        assert_eq!(orders(&chain.step(child(index, Life::Stopping))), [""; 0]);
        assert_eq!(orders(&chain.step(child(index, Life::Down))), [format!("stop {}", index - 1)]);
    }
    let effects = chain.step(child(0, Life::Down));
    assert_eq!(effects, [Effect::Became { state: ChainState::Down, reason: None }]);
}

#[test]
fn a_dead_postgres_is_ridden_through_and_every_gate_is_looked_at_again() {
    let mut chain = running();
    let effects = chain.step(dead(0));
    assert!(effects.contains(&Effect::Excuse(2)));
    assert_eq!(chain.state().0, ChainState::Recovering);
    assert_eq!(orders(&chain.step(child(0, Life::Due))), ["start 0"]);
    assert_eq!(orders(&chain.step(ready(0))), ["recheck 1"]);
    for index in 1..4 {
        assert_eq!(orders(&chain.step(ready(index))), [format!("recheck {}", index + 1)]);
    }
    chain.step(ready(4));
    assert_eq!(chain.state(), (ChainState::Ready, None));
}

#[test]
fn a_dead_apiserver_takes_the_controller_manager_down_before_it_starts_again() {
    let mut chain = running();
    assert_eq!(orders(&chain.step(dead(2))), ["stop 3"]);
    assert_eq!(orders(&chain.step(child(2, Life::Due))), [""; 0]);
    assert_eq!(orders(&chain.step(child(3, Life::Down))), ["start 2"]);
    assert_eq!(orders(&chain.step(ready(2))), ["start 3"]);
    assert_eq!(orders(&chain.step(ready(3))), ["recheck 4"]);
}

#[test]
fn the_ccms_own_death_restarts_the_ccm_alone() {
    let mut chain = running();
    assert_eq!(orders(&chain.step(dead(4))), [""; 0]);
    assert_eq!(orders(&chain.step(child(4, Life::Due))), ["start 4"]);
}

#[test]
fn a_step_still_red_after_a_ride_through_is_restarted_after_all() {
    let mut chain = running();
    chain.step(dead(0));
    chain.step(child(0, Life::Due));
    assert_eq!(orders(&chain.step(ready(0))), ["recheck 1"]);
    assert_eq!(orders(&chain.step(child(1, Life::Red))), ["stop 1"]);
    assert_eq!(orders(&chain.step(child(1, Life::Down))), ["start 1"]);
}

#[test]
fn a_start_that_waits_in_vain_for_an_earlier_step_takes_that_one_along_and_is_charged_for_it() {
    let mut chain = running();
    assert_eq!(orders(&chain.step(dead(2))), ["stop 3"]);
    assert_eq!(orders(&chain.step(child(3, Life::Down))), [""; 0]);
    assert_eq!(orders(&chain.step(child(2, Life::Due))), ["start 2"]);
    assert_eq!(orders(&chain.step(dead(2))), [""; 0]);
    let effects = chain.step(child(2, Life::Suspects { step: "kine".into() }));
    assert_eq!(orders(&effects), ["stop 1"]);
    assert!(!effects.contains(&Effect::Excuse(2)), "else the two could restart for ever");
    assert_eq!(orders(&chain.step(child(2, Life::Due))), [""; 0]);
    assert_eq!(orders(&chain.step(child(1, Life::Down))), ["start 1"]);
    assert_eq!(orders(&chain.step(ready(1))), ["start 2"]);
}

/// Also where an operator has said that it restarts with the step it suspects: stopped and started for that, it would never end.
#[test]
fn a_start_that_waits_in_vain_is_judged_by_its_own_end_even_where_it_restarts_with_what_it_suspects() {
    let mut steps = tenant();
    steps[2].reactions.insert("kine".to_owned(), Reaction::Restart);
    let mut chain = Chain::new(&steps).unwrap();
    chain.step(Event::Up);
    for index in 0..2 {
        chain.step(ready(index));
    }
    chain.step(dead(2));
    let effects = chain.step(child(2, Life::Suspects { step: "kine".into() }));
    assert_eq!(orders(&effects), ["stop 1"], "itself is not stopped: it has ended");
    chain.step(child(2, Life::Failed { reason: "gave up".into(), refused: false }));
    chain.step(child(1, Life::Down));
    chain.step(ready(1));
    assert_eq!(chain.state(), (ChainState::Degraded, Some("apiserver: gave up".into())));
}

#[test]
fn a_suspicion_of_what_is_no_earlier_step_or_restarts_already_changes_nothing() {
    let mut chain = running();
    chain.step(dead(2));
    for step in ["ccm", "apiserver", "nobody"] {
        assert_eq!(chain.step(child(2, Life::Suspects { step: step.into() })), []);
    }
    chain.step(dead(1));
    assert_eq!(chain.step(child(2, Life::Suspects { step: "kine".into() })), []);
}

#[test]
fn a_step_that_gives_up_degrades_the_chain_and_retry_clears_it() {
    let mut chain = running();
    chain.step(dead(1));
    chain.step(child(1, Life::Failed { reason: "gave up".into(), refused: false }));
    assert_eq!(chain.state(), (ChainState::Degraded, Some("kine: gave up".into())));
    assert!(chain.step(Event::Retry).contains(&Effect::Retry(1)));
    assert_eq!(orders(&chain.step(child(1, Life::Due))), ["start 1"]);
}

#[test]
fn a_refusal_leaves_the_later_steps_unspawned() {
    let mut chain = Chain::new(&tenant()).unwrap();
    chain.step(Event::Up);
    chain.step(ready(0));
    chain.step(ready(1));
    let refused = Life::Failed { reason: "two identities".into(), refused: true };
    assert_eq!(orders(&chain.step(child(2, refused))), [""; 0]);
    assert_eq!(chain.state(), (ChainState::Refused, Some("apiserver: two identities".into())));
}

#[test]
fn a_step_told_to_stop_is_stopped_once_whatever_it_said_meanwhile() {
    let mut chain = Chain::new(&tenant()).unwrap();
    chain.step(Event::Up);
    assert_eq!(orders(&chain.step(Event::Down)), ["stop 0"]);
    for late in [Life::Starting, READY, Life::Dead { failure: "x".into() }, Life::Due, Life::Stopping] {
        assert_eq!(orders(&chain.step(child(0, late))), [""; 0]);
    }
    chain.step(child(0, Life::Down));
    assert_eq!(chain.state(), (ChainState::Down, None));
}

#[test]
fn an_earlier_death_neither_lifts_a_refusal_nor_a_give_up() {
    for refused in [true, false] {
        let mut chain = running();
        let state = if refused { ChainState::Refused } else { ChainState::Degraded };
        chain.step(dead(4));
        chain.step(child(4, Life::Failed { reason: "no".into(), refused }));
        chain.links[4].reactions[0] = Reaction::Restart;
        assert_eq!(orders(&chain.step(dead(0))), [""; 0]);
        assert_eq!(orders(&chain.step(child(0, Life::Due))), ["start 0"]);
        for index in 0..4 {
            chain.step(ready(index));
        }
        assert_eq!(chain.state(), (state, Some("ccm: no".into())));
    }
}

#[test]
fn a_gate_still_closed_counts_only_while_everything_before_it_is_ready() {
    let mut chain = running();
    chain.step(dead(0));
    chain.step(child(0, Life::Due));
    assert_eq!(orders(&chain.step(ready(0))), ["recheck 1"]);
    chain.step(dead(0));
    assert_eq!(orders(&chain.step(child(1, Life::Red))), [""; 0], "kine cannot serve without postgres");
    assert_eq!(orders(&chain.step(child(0, Life::Due))), ["start 0"]);
    assert_eq!(orders(&chain.step(ready(0))), ["recheck 1"], "its time begins anew");
    assert_eq!(orders(&chain.step(child(1, Life::Red))), ["stop 1"]);
}

#[test]
fn a_chain_started_during_its_stop_is_starting_not_recovering() {
    let mut chain = running();
    chain.step(Event::Down);
    chain.step(Event::Up);
    assert_eq!(chain.state().0, ChainState::Starting);
    assert_eq!(orders(&chain.step(child(4, Life::Down))), ["start 4"]);
}

#[test]
fn retry_tries_every_step_that_gave_up() {
    let mut chain = running();
    for index in [1, 4] {
        chain.step(dead(index));
        chain.step(child(index, Life::Failed { reason: "gave up".into(), refused: false }));
    }
    let effects = chain.step(Event::Retry);
    assert!(effects.contains(&Effect::Retry(1)) && effects.contains(&Effect::Retry(4)), "{effects:?}");
    assert_eq!(orders(&chain.step(child(4, Life::Due))), [""; 0]);
    assert_eq!(orders(&chain.step(child(1, Life::Due))), ["start 1"]);
}

#[test]
fn a_guard_that_refuses_a_restart_leaves_what_rides_through_as_it_is() {
    let mut chain = running();
    assert_eq!(orders(&chain.step(dead(2))), ["stop 3"]);
    chain.step(child(3, Life::Down));
    chain.step(child(2, Life::Due));
    let refused = Life::Failed { reason: "two identities".into(), refused: true };
    assert_eq!(orders(&chain.step(child(2, refused))), [""; 0]);
    assert_eq!(chain.state().0, ChainState::Refused);
    chain.step(Event::Retry);
    assert_eq!(orders(&chain.step(child(2, Life::Due))), ["start 2"]);
    assert_eq!(orders(&chain.step(ready(2))), ["start 3"]);
    assert_eq!(orders(&chain.step(ready(3))), ["recheck 4"]);
}

fn ended_cleanly(chain: &mut Chain, index: usize) {
    assert_eq!(orders(&chain.step(child(index, Life::Ended))), [""; 0]);
    assert_eq!(orders(&chain.step(child(index, Life::Done { how: "exit code 0".into() }))), [""; 0]);
}

#[test]
fn a_step_that_is_done_stops_nothing_behind_it_and_says_why_it_is_gone() {
    let mut chain = running();
    ended_cleanly(&mut chain, 2);
    let (state, reason) = chain.state();
    assert_eq!(state, ChainState::Done);
    assert_eq!(reason.unwrap(), "apiserver: exit code 0, and its policy leaves it at that");
}

#[test]
fn nothing_starts_behind_a_step_that_is_done_and_no_neighbours_death_revives_it() {
    let mut chain = running();
    ended_cleanly(&mut chain, 2);
    chain.step(dead(3));
    assert_eq!(orders(&chain.step(child(3, Life::Due))), [""; 0], "its gate is shut");
    chain.step(dead(0));
    assert_eq!(chain.state().0, ChainState::Recovering);
    assert_eq!(orders(&chain.step(child(0, Life::Due))), ["start 0"]);
    assert_eq!(orders(&chain.step(ready(0))), ["recheck 1"]);
    assert_eq!(orders(&chain.step(ready(1))), [""; 0]);
    assert_eq!(chain.state().0, ChainState::Done);
}

#[test]
fn a_retry_of_a_step_that_is_done_first_stops_what_must_not_run_at_its_start() {
    let mut chain = running();
    ended_cleanly(&mut chain, 2);
    assert_eq!(orders(&chain.step(Event::Retry)), ["stop 3"]);
    chain.step(child(2, Life::Due));
    assert_eq!(orders(&chain.step(child(3, Life::Down))), ["start 2"]);
    assert_eq!(orders(&chain.step(ready(2))), ["start 3"]);
    assert_eq!(orders(&chain.step(ready(3))), ["recheck 4"]);
    chain.step(ready(4));
    assert_eq!(chain.state(), (ChainState::Ready, None));
}

#[test]
fn a_stop_that_hangs_names_what_hangs_and_goes_on_there() {
    let mut chain = running();
    assert_eq!(orders(&chain.step(Event::Down)), ["stop 4"]);
    assert_eq!(orders(&chain.step(child(4, Life::Down))), ["stop 3"]);
    let reason = "still alive 5s after SIGKILL: kcm (pid 9)";
    assert_eq!(orders(&chain.step(child(3, Life::Stuck { reason: reason.into() }))), [""; 0]);
    assert_eq!(chain.state(), (ChainState::Stopping, Some(format!("kcm: {reason}"))));
    assert_eq!(orders(&chain.step(Event::Up)), [""; 0], "a failed stop blocks every start");
    assert_eq!(chain.state(), (ChainState::Starting, Some(format!("kcm: {reason}"))));
    assert_eq!(orders(&chain.step(Event::Down)), [""; 0]);
    assert_eq!(orders(&chain.step(child(3, Life::Down))), ["stop 2"], "resumed at the failed step");
    assert_eq!(chain.state(), (ChainState::Stopping, None));
}

proptest! {
    /// Children that do as told, or die, in any order: never a start before its gate, stops in reverse, and once the
    /// deaths end everything is ready again.
    #[test]
    fn order_holds_under_any_deaths(choices in prop::collection::vec((0usize..5, 0u8..8), 1..200)) {
        let steps = tenant();
        let rides_through = |later: usize, at: usize| steps[later].reaction_to(&steps[at].component) != Reaction::Restart;
        let mut chain = Chain::new(&steps).unwrap();
        let mut life = vec![Stage::Down; 5];
        let mut todo: Vec<Effect> = chain.step(Event::Up);
        let check = |chain: &mut Chain, life: &mut Vec<Stage>, todo: &mut Vec<Effect>, index: usize, new: Life, stage: Stage| {
            life[index] = stage;
            todo.extend(chain.step(Event::Child { index, life: new }));
            for effect in todo.drain(..) {
                match effect {
                    Effect::Start(at) => {
                        prop_assert!(life[..at].iter().all(|stage| *stage == Stage::Ready), "{at} started too early: {life:?}");
                        life[at] = Stage::Starting;
                    }
                    Effect::Recheck(at, _) => life[at] = Stage::Starting,
                    Effect::Stop(at) => {
                        let in_order = (at + 1..life.len()).all(|later| {
                            [Stage::Down, Stage::Dead, Stage::Due].contains(&life[later]) || rides_through(later, at)
                        });
                        prop_assert!(in_order, "{at} stopped too early: {life:?}");
                        life[at] = Stage::Stopping;
                    }
                    _ => {}
                }
            }
            Ok(())
        };
        for effect in todo.split_off(0) {
            if let Effect::Start(at) = effect { life[at] = Stage::Starting; }
        }
        let calm = (0..5).cycle().take(60).map(|index| (index, 0u8));
        for (index, choice) in choices.into_iter().chain(calm) {
            let dies = choice > 5;
            match (life[index], dies) {
                (Stage::Starting, false) => check(&mut chain, &mut life, &mut todo, index, READY, Stage::Ready)?,
                (Stage::Ready | Stage::Starting, true) => {
                    check(&mut chain, &mut life, &mut todo, index, Life::Dead { failure: "x".into() }, Stage::Dead)?;
                    if choice == 7 && life[index] == Stage::Dead {
                        let step = ["postgres", "kine"][index % 2].to_owned();
                        check(&mut chain, &mut life, &mut todo, index, Life::Suspects { step }, Stage::Dead)?;
                    }
                }
                (Stage::Stopping, _) => check(&mut chain, &mut life, &mut todo, index, Life::Down, Stage::Down)?,
                (Stage::Dead, _) => check(&mut chain, &mut life, &mut todo, index, Life::Due, Stage::Due)?,
                _ => {}
            }
        }
        prop_assert_eq!(chain.state().0, ChainState::Ready, "{:?}", life);
    }
}
