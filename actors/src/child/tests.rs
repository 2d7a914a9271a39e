//! Sentences about one child, and its properties under random histories.

use super::*;
use crate::host::{GateError, PrepareError, SpawnError};
use crate::policy::Restart;
use crate::spec::Signal;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn child() -> Child {
    let stop = StopPlan {
        signal: Signal::Term,
        deadline: Duration::from_secs(5),
        repeat_after: Some(Duration::from_secs(2)),
    };
    Child::new(RestartPolicy::default(), stop, Duration::from_secs(30), true, 7)
}

fn process(pid: u32) -> Identity {
    Identity { boot_id: "boot".into(), pid, start_time: u64::from(pid) * 10 }
}

/// Drives a child to `Ready` as `process(pid)`.
fn bring_up(child: &mut Child, pid: u32, now: Instant) {
    child.step(Event::Start, now);
    let attempt = child.attempt();
    child.step(Event::Prepared { attempt, result: Ok(()) }, now);
    child.step(Event::Spawned { attempt, result: Ok(process(pid)) }, now);
    let address = "127.0.0.1:4000".parse().unwrap();
    child.step(Event::Discovered { identity: process(pid), result: Ok(address) }, now);
    child.step(Event::Gate { identity: process(pid), result: Ok(()) }, now);
    assert_eq!(child.state(), ChildState::Ready);
}

fn became(effects: &[Effect]) -> Vec<&Life> {
    effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Became(life) => Some(life),
            _ => None,
        })
        .collect()
}

#[test]
fn a_start_goes_through_preparation_spawn_discovery_and_gate() {
    let (mut child, now) = (child(), Instant::now());
    let effects = child.step(Event::Start, now);
    assert!(effects.contains(&Effect::Prepare { attempt: 1 }));
    let effects = child.step(Event::Prepared { attempt: 1, result: Ok(()) }, now);
    assert_eq!(effects, [Effect::Spawn { attempt: 1 }]);
    let effects = child.step(Event::Spawned { attempt: 1, result: Ok(process(1)) }, now);
    assert_eq!(effects, [Effect::Discover { identity: process(1) }]);
    let address = "127.0.0.1:4000".parse().unwrap();
    let effects = child.step(Event::Discovered { identity: process(1), result: Ok(address) }, now);
    assert_eq!(effects, [Effect::AwaitGate { identity: process(1) }]);
    let later = now + Duration::from_millis(40);
    let effects = child.step(Event::Gate { identity: process(1), result: Ok(()) }, later);
    assert_eq!(became(&effects), [&Life::Ready { took: Some(Duration::from_millis(40)) }]);
}

#[test]
fn a_stop_during_preparation_ends_down_without_a_process() {
    let (mut child, now) = (child(), Instant::now());
    child.step(Event::Start, now);
    child.step(Event::Stop { deadline: None }, now);
    assert_eq!(child.state(), ChildState::Stopping);
    let effects = child.step(Event::Prepared { attempt: 1, result: Ok(()) }, now);
    assert_eq!(became(&effects), [&Life::Down]);
}

#[test]
fn a_stop_during_the_spawn_ends_the_process_that_comes_of_it() {
    let (mut child, now) = (child(), Instant::now());
    child.step(Event::Start, now);
    child.step(Event::Prepared { attempt: 1, result: Ok(()) }, now);
    child.step(Event::Stop { deadline: None }, now);
    let effects = child.step(Event::Spawned { attempt: 1, result: Ok(process(3)) }, now);
    assert!(effects.contains(&Effect::Signal { identity: process(3), signal: Signal::Term }));
    child.step(Event::Exited { identity: process(3), status: ExitStatus::Code(255) }, now);
    let effects = child.step(Event::Reaped { identity: process(3), result: Ok(()) }, now);
    assert_eq!(became(&effects), [&Life::Down]);
}

#[test]
fn a_process_deaf_to_its_signal_is_signalled_again_and_then_reaped() {
    let (mut child, now) = (child(), Instant::now());
    bring_up(&mut child, 1, now);
    let effects = child.step(Event::Stop { deadline: None }, now);
    assert!(effects.contains(&Effect::Arm { timer: Timer::Stop, attempt: 1, after: Duration::from_secs(5) }));
    let effects = child.step(Event::Timer { timer: Timer::Repeat, attempt: 1 }, now);
    assert_eq!(effects, [Effect::Signal { identity: process(1), signal: Signal::Term }]);
    let effects = child.step(Event::Timer { timer: Timer::Stop, attempt: 1 }, now);
    assert!(effects.contains(&Effect::Reap { identity: process(1) }));
}

#[test]
fn a_leader_that_exits_leaves_nothing_behind_before_it_counts_as_down() {
    let (mut child, now) = (child(), Instant::now());
    bring_up(&mut child, 1, now);
    child.step(Event::Stop { deadline: None }, now);
    let effects = child.step(Event::Exited { identity: process(1), status: ExitStatus::Code(0) }, now);
    assert!(effects.contains(&Effect::Reap { identity: process(1) }));
    assert_eq!(child.state(), ChildState::Stopping);
}

#[test]
fn a_failed_reap_is_tried_again_and_blocks_the_next_start() {
    let (mut child, now) = (child(), Instant::now());
    bring_up(&mut child, 1, now);
    child.step(Event::Stop { deadline: None }, now);
    child.step(Event::Exited { identity: process(1), status: ExitStatus::Code(0) }, now);
    child.step(Event::Reaped { identity: process(1), result: Err("pid 9 is left".into()) }, now);
    assert!(child.step(Event::Start, now).is_empty());
    assert_eq!(child.last_failure(), Some("pid 9 is left"));
    assert_eq!(child.waits_for().unwrap(), "the end of its last process: pid 9 is left");
    let effects = child.step(Event::Timer { timer: Timer::Reap, attempt: 1 }, now);
    assert!(effects.contains(&Effect::Reap { identity: process(1) }));
    let effects = child.step(Event::Reaped { identity: process(1), result: Ok(()) }, now);
    assert_eq!(became(&effects), [&Life::Down]);
    assert!(child.step(Event::Start, now).contains(&Effect::Prepare { attempt: 2 }));
    assert_eq!(child.waits_for().unwrap(), "its preparation");
}

#[test]
fn an_unasked_exit_is_reaped_and_then_due_at_once() {
    let (mut child, now) = (child(), Instant::now());
    bring_up(&mut child, 1, now);
    child.step(Event::Exited { identity: process(1), status: ExitStatus::Signal(9) }, now);
    let effects = child.step(Event::Reaped { identity: process(1), result: Ok(()) }, now);
    assert_eq!(became(&effects), [&Life::Due]);
    assert_eq!(child.last_failure(), Some("killed by signal 9"));
}

#[test]
fn a_late_exit_of_an_old_process_does_not_touch_its_replacement() {
    let (mut child, now) = (child(), Instant::now());
    bring_up(&mut child, 1, now);
    child.step(Event::Exited { identity: process(1), status: ExitStatus::Signal(9) }, now);
    child.step(Event::Reaped { identity: process(1), result: Ok(()) }, now);
    bring_up(&mut child, 2, now);
    assert!(child.step(Event::Exited { identity: process(1), status: ExitStatus::Code(0) }, now).is_empty());
    assert_eq!(child.state(), ChildState::Ready);
}

#[test]
fn a_refusal_of_the_guard_is_final_until_an_operator_retries() {
    let (mut child, now) = (child(), Instant::now());
    child.step(Event::Start, now);
    let refused = Err(PrepareError::Refused("two identities".into()));
    let effects = child.step(Event::Prepared { attempt: 1, result: refused }, now);
    assert_eq!(became(&effects), [&Life::Failed { reason: "two identities".into(), refused: true }]);
    assert!(child.step(Event::Start, now).is_empty());
    assert_eq!(became(&child.step(Event::Retry, now)), [&Life::Due]);
}

#[test]
fn a_lost_hold_of_the_guard_is_told_once_it_is_ready_and_a_late_word_of_it_changes_nothing() {
    let (mut child, now) = (child(), Instant::now());
    bring_up(&mut child, 1, now);
    assert_eq!(became(&child.step(Event::Unguarded { identity: process(1) }, now)), [&Life::Unguarded]);
    child.step(Event::Recheck { within: Duration::from_secs(5) }, now);
    assert!(child.step(Event::Unguarded { identity: process(1) }, now).is_empty(), "it is asked already");
    let refused = Err(GateError::Refused("DatabaseInUse".into()));
    child.step(Event::Gate { identity: process(1), result: refused }, now);
    child.step(Event::Exited { identity: process(1), status: ExitStatus::Code(0) }, now);
    let effects = child.step(Event::Reaped { identity: process(1), result: Ok(()) }, now);
    assert!(matches!(became(&effects)[..], [Life::Failed { refused: true, .. }]), "{effects:?}");
    assert!(child.step(Event::Unguarded { identity: process(1) }, now).is_empty());
}

#[test]
fn a_hopeless_gate_is_killed_without_asking_and_judged_by_the_policy() {
    let (mut child, now) = (child(), Instant::now());
    child.step(Event::Start, now);
    child.step(Event::Prepared { attempt: 1, result: Ok(()) }, now);
    child.step(Event::Spawned { attempt: 1, result: Ok(process(1)) }, now);
    child.step(Event::Discovered { identity: process(1), result: Ok("127.0.0.1:1".parse().unwrap()) }, now);
    let hang = Err(GateError::Hopeless("hung in its start".into()));
    let effects = child.step(Event::Gate { identity: process(1), result: hang }, now);
    assert!(effects.contains(&Effect::Reap { identity: process(1) }));
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Signal { .. })));
}

#[test]
fn a_recheck_that_stays_closed_turns_red() {
    let (mut child, now) = (child(), Instant::now());
    bring_up(&mut child, 1, now);
    child.step(Event::Recheck { within: Duration::from_secs(20) }, now);
    assert_eq!(child.state(), ChildState::Starting);
    let effects = child.step(Event::Timer { timer: Timer::Gate, attempt: 1 }, now);
    assert_eq!(became(&effects), [&Life::Red]);
    assert_eq!(child.state(), ChildState::Starting);
}

/// Drives a started child to its gate as `process(pid)`.
fn to_its_gate(child: &mut Child, pid: u32, now: Instant) {
    let attempt = child.attempt();
    child.step(Event::Prepared { attempt, result: Ok(()) }, now);
    child.step(Event::Spawned { attempt, result: Ok(process(pid)) }, now);
    let address = "127.0.0.1:4000".parse().unwrap();
    child.step(Event::Discovered { identity: process(pid), result: Ok(address) }, now);
}

#[test]
fn an_excuse_ends_with_the_next_start() {
    let (mut child, now) = (child(), Instant::now());
    bring_up(&mut child, 1, now);
    child.step(Event::Excuse, now);
    for pid in 1..10 {
        child.step(Event::Exited { identity: process(pid), status: ExitStatus::Code(1) }, now);
        child.step(Event::Reaped { identity: process(pid), result: Ok(()) }, now);
        let attempt = child.attempt();
        child.step(Event::Timer { timer: Timer::Backoff, attempt }, now);
        child.step(Event::Start, now);
        to_its_gate(&mut child, pid + 1, now);
    }
    assert_eq!(child.state(), ChildState::Failed, "a step that never starts again must give up");
}

#[test]
fn a_recheck_neither_renews_the_time_a_start_took_nor_ends_a_healthy_spell() {
    let (mut child, start) = (child(), Instant::now());
    bring_up(&mut child, 1, start);
    let later = start + Duration::from_secs(3600);
    child.step(Event::Recheck { within: Duration::from_secs(20) }, later);
    let effects = child.step(Event::Gate { identity: process(1), result: Ok(()) }, later);
    assert_eq!(became(&effects), [&Life::Ready { took: None }]);
    assert!(matches!(child.phase, Phase::Ready { since, .. } if since == start));
}

#[test]
fn a_death_during_a_recheck_counts_as_the_death_of_a_ready_process() {
    let (mut child, start) = (child(), Instant::now());
    bring_up(&mut child, 1, start);
    let later = start + Duration::from_secs(3600);
    child.step(Event::Recheck { within: Duration::from_secs(20) }, later);
    child.step(Event::Exited { identity: process(1), status: ExitStatus::Signal(9) }, later);
    let effects = child.step(Event::Reaped { identity: process(1), result: Ok(()) }, later);
    assert_eq!(became(&effects), [&Life::Due], "after a healthy spell the first restart is immediate");
    assert_eq!(child.last_failure(), Some("killed by signal 9"));
}

#[test]
fn a_recheck_during_a_recheck_begins_a_new_deadline() {
    let (mut child, now) = (child(), Instant::now());
    bring_up(&mut child, 1, now);
    child.step(Event::Recheck { within: Duration::from_secs(20) }, now);
    let effects = child.step(Event::Recheck { within: Duration::from_secs(20) }, now);
    assert!(effects.contains(&Effect::AwaitGate { identity: process(1) }), "{effects:?}");
}

#[test]
fn a_child_is_down_once_however_often_it_is_stopped() {
    let (mut child, now) = (child(), Instant::now());
    child.step(Event::Start, now);
    child.step(Event::Stop { deadline: None }, now);
    let effects = child.step(Event::Prepared { attempt: 1, result: Ok(()) }, now);
    assert_eq!(became(&effects), [&Life::Down]);
    let again = child.step(Event::Stop { deadline: None }, now);
    assert_eq!(again, [], "a second Down would be taken for the end of the next life");
}

#[test]
fn a_hurried_stop_shortens_an_ending_that_is_under_way() {
    let (mut child, now) = (child(), Instant::now());
    bring_up(&mut child, 1, now);
    child.step(Event::Stop { deadline: None }, now);
    let hurry = Duration::from_secs(1);
    let effects = child.step(Event::Stop { deadline: Some(hurry) }, now);
    assert!(effects.contains(&Effect::Arm { timer: Timer::Stop, attempt: 1, after: hurry }), "{effects:?}");
}

fn adopted(child: &mut Child, is_placed: bool, now: Instant) -> Vec<Effect> {
    assert!(child.step(Event::Adopt, now).contains(&Effect::Adopt { attempt: 1 }));
    let found = Found { identity: process(1), fits: true, is_placed };
    child.step(Event::Adopted { attempt: 1, found: Some(found) }, now)
}

#[test]
fn an_adopted_process_is_ready_only_once_its_gate_was_looked_at_and_was_no_restart() {
    let (mut child, now) = (child(), Instant::now());
    assert_eq!(became(&adopted(&mut child, true, now)), [&Life::Adopted { fits: true }]);
    assert_eq!(child.state(), ChildState::Starting);
    let effects = child.step(Event::Recheck { within: Duration::from_secs(1) }, now);
    assert!(effects.contains(&Effect::AwaitGate { identity: process(1) }));
    let effects = child.step(Event::Gate { identity: process(1), result: Ok(()) }, now);
    assert_eq!(became(&effects), [&Life::Ready { took: None }]);
    assert_eq!(child.restarts(), 0);
    child.step(Event::Exited { identity: process(1), status: ExitStatus::Unknown }, now);
    child.step(Event::Reaped { identity: process(1), result: Ok(()) }, now);
    child.step(Event::Start, now);
    assert_eq!(child.restarts(), 1);
}

#[test]
fn an_adopted_start_that_was_interrupted_goes_on_where_it_was() {
    let (mut child, now) = (child(), Instant::now());
    adopted(&mut child, false, now);
    let effects = child.step(Event::Recheck { within: Duration::from_secs(1) }, now);
    assert!(effects.contains(&Effect::Discover { identity: process(1) }));
    let result = Ok("127.0.0.1:4000".parse().unwrap());
    let effects = child.step(Event::Discovered { identity: process(1), result }, now);
    assert_eq!(effects, [Effect::AwaitGate { identity: process(1) }]);
}

#[test]
fn an_adopted_process_that_dies_before_its_turn_is_reaped_and_due() {
    let (mut child, now) = (child(), Instant::now());
    adopted(&mut child, true, now);
    let effects = child.step(Event::Exited { identity: process(1), status: ExitStatus::Signal(9) }, now);
    assert!(effects.contains(&Effect::Reap { identity: process(1) }));
    let effects = child.step(Event::Reaped { identity: process(1), result: Ok(()) }, now);
    assert_eq!(became(&effects), [&Life::Due]);
}

#[test]
fn a_stop_while_the_host_is_asked_stops_what_it_finds() {
    let (mut child, now) = (child(), Instant::now());
    child.step(Event::Adopt, now);
    child.step(Event::Stop { deadline: None }, now);
    let found = Found { identity: process(1), fits: true, is_placed: true };
    let effects = child.step(Event::Adopted { attempt: 1, found: Some(found) }, now);
    assert!(effects.contains(&Effect::Signal { identity: process(1), signal: Signal::Term }));
}

fn child_that_is(restart: Restart) -> Child {
    let Child { policy, stop, start_deadline, discovers, .. } = child();
    Child::new(RestartPolicy { restart, ..policy }, stop, start_deadline, discovers, 7)
}

/// Every life told when a ready `child` exits and is reaped.
fn lives_after_exit(child: &mut Child, pid: u32, status: ExitStatus) -> Vec<Life> {
    let now = Instant::now();
    bring_up(child, pid, now);
    let mut effects = child.step(Event::Exited { identity: process(pid), status }, now);
    effects.extend(child.step(Event::Reaped { identity: process(pid), result: Ok(()) }, now));
    became(&effects).into_iter().cloned().collect()
}

#[test]
fn a_clean_exit_of_a_transient_child_is_its_end_and_nobody_is_told_of_a_death() {
    let mut child = child_that_is(Restart::Transient(vec![0, 3]));
    let lives = lives_after_exit(&mut child, 1, ExitStatus::Code(3));
    assert_eq!(lives, [Life::Ended, Life::Done { how: "exit code 3".into() }]);
    assert_eq!((child.state(), child.last_failure()), (ChildState::Done, None));
    assert!(child.step(Event::Start, Instant::now()).is_empty());
    assert_eq!(became(&child.step(Event::Retry, Instant::now())), [&Life::Due]);
    let lives = lives_after_exit(&mut child, 2, ExitStatus::Code(1));
    assert_eq!(lives, [Life::Dead { failure: "exit code 1".into() }, Life::Due]);
}

#[test]
fn a_temporary_child_that_crashes_has_failed_and_is_not_restarted() {
    let mut child = child_that_is(Restart::Temporary);
    let lives = lives_after_exit(&mut child, 1, ExitStatus::Signal(11));
    let reason = "killed by signal 11; its policy does not restart it".to_owned();
    assert_eq!(lives, [Life::Ended, Life::Failed { reason, refused: false }]);
}

#[test]
fn a_child_that_is_done_goes_down_with_its_chain() {
    let mut child = child_that_is(Restart::Transient(vec![0]));
    lives_after_exit(&mut child, 1, ExitStatus::Code(0));
    assert_eq!(became(&child.step(Event::Stop { deadline: None }, Instant::now())), [&Life::Down]);
}

#[test]
fn a_stop_that_meets_a_clean_exit_ends_down() {
    let (mut child, now) = (child_that_is(Restart::Transient(vec![0])), Instant::now());
    bring_up(&mut child, 1, now);
    child.step(Event::Exited { identity: process(1), status: ExitStatus::Code(0) }, now);
    child.step(Event::Stop { deadline: None }, now);
    let effects = child.step(Event::Reaped { identity: process(1), result: Ok(()) }, now);
    assert_eq!(became(&effects), [&Life::Down]);
}

/// Killed at its deadline, and only then seen to exit.
#[test]
fn one_slow_exit_is_followed_by_one_restart() {
    let (mut child, now) = (child(), Instant::now());
    child.step(Event::Start, now);
    to_its_gate(&mut child, 1, now);
    let exited = || Event::Exited { identity: process(1), status: ExitStatus::Signal(9) };
    let mut effects = child.step(Event::Timer { timer: Timer::Gate, attempt: 1 }, now);
    effects.extend(child.step(Event::Timer { timer: Timer::Stop, attempt: 1 }, now));
    effects.extend(child.step(exited(), now));
    effects.extend(child.step(Event::Reaped { identity: process(1), result: Ok(()) }, now));
    effects.extend(child.step(exited(), now));
    effects.extend(child.step(Event::Timer { timer: Timer::Backoff, attempt: 1 }, now));
    effects.extend(child.step(Event::Timer { timer: Timer::Backoff, attempt: 1 }, now));
    effects.extend(child.step(exited(), now));
    assert_eq!(became(&effects).into_iter().filter(|life| **life == Life::Due).count(), 1, "{effects:?}");
    child.step(Event::Start, now);
    assert!(child.step(exited(), now).is_empty());
    assert_eq!((child.state(), child.restarts()), (ChildState::Starting, 1));
}

#[test]
fn a_crash_loop_after_ready_waits_longer_each_time_and_then_gives_up() {
    let (mut child, now) = (child(), Instant::now());
    let mut delays = Vec::new();
    for pid in 1..=6 {
        bring_up(&mut child, pid, now);
        child.step(Event::Exited { identity: process(pid), status: ExitStatus::Code(1) }, now);
        let effects = child.step(Event::Reaped { identity: process(pid), result: Ok(()) }, now);
        delays.extend(effects.iter().filter_map(|effect| match effect {
            Effect::Arm { timer: Timer::Backoff, after, .. } => Some(*after),
            _ => None,
        }));
        let attempt = child.attempt();
        child.step(Event::Timer { timer: Timer::Backoff, attempt }, now);
    }
    assert_eq!(delays.len(), 4, "the first restart is at once, the sixth never comes");
    assert!(delays.is_sorted() && delays[0] >= Duration::from_millis(320), "{delays:?}");
    assert_eq!(child.state(), ChildState::Failed);
    let failure = child.last_failure().unwrap();
    assert!(failure.contains("gave up after 5 restarts within 60 s; the last: exit code 1"), "{failure}");
}

/// Each phase a start can be in, and what is then owed to it.
#[test]
fn a_stop_in_every_phase_of_a_start_ends_down_with_nothing_alive() {
    let now = Instant::now();
    let address = "127.0.0.1:4000".parse().unwrap();
    let steps = [
        Event::Start,
        Event::Prepared { attempt: 1, result: Ok(()) },
        Event::Spawned { attempt: 1, result: Ok(process(1)) },
        Event::Discovered { identity: process(1), result: Ok(address) },
        Event::Gate { identity: process(1), result: Ok(()) },
    ];
    for stopped_after in 1..=steps.len() {
        let mut child = child();
        let mut told = Vec::new();
        for event in &steps[..stopped_after] {
            child.step(event.clone(), now);
        }
        told.extend(child.step(Event::Stop { deadline: None }, now));
        assert_eq!(child.state(), ChildState::Stopping, "stopped after {stopped_after} steps");
        // Whatever was owed still comes, late.
        for event in &steps[stopped_after..] {
            told.extend(child.step(event.clone(), now));
        }
        let has_process = stopped_after > 1;
        assert_eq!(child.identity().is_some(), has_process, "stopped after {stopped_after} steps");
        told.extend(child.step(Event::Exited { identity: process(1), status: ExitStatus::Code(0) }, now));
        told.extend(child.step(Event::Reaped { identity: process(1), result: Ok(()) }, now));
        assert_eq!((child.state(), child.identity()), (ChildState::Down, None));
        let told = became(&told);
        assert_eq!(told.last(), Some(&&Life::Down), "{told:?}");
        assert!(!told.iter().any(|life| matches!(life, Life::Ready { .. } | Life::Dead { .. })), "{told:?}");
        assert_eq!(told.iter().filter(|life| **life == &Life::Down).count(), 1, "{told:?}");
    }
}

/// A tiny host: remembers what was asked and can answer each of it, well or badly, in any order.
#[derive(Debug, Default)]
struct World {
    adopt: Option<u64>,
    prepare: Option<u64>,
    occupied: Option<u64>,
    spawn: Option<u64>,
    discover: Option<Identity>,
    gate: Option<Identity>,
    reap: Option<Identity>,
    live: BTreeSet<u32>,
    next_pid: u32,
    armed: BTreeSet<&'static str>,
}

impl World {
    fn obey(&mut self, effects: &[Effect], attempt: u64) -> Result<(), TestCaseError> {
        for effect in effects {
            match effect {
                Effect::Adopt { attempt } => self.adopt = Some(*attempt),
                Effect::Prepare { attempt } => self.prepare = Some(*attempt),
                Effect::AwaitVacancy { attempt } => self.occupied = Some(*attempt),
                Effect::Abandon => self.prepare = None,
                Effect::Spawn { attempt } => self.spawn = Some(*attempt),
                Effect::Discover { identity } => self.discover = Some(identity.clone()),
                Effect::AwaitGate { identity } => self.gate = Some(identity.clone()),
                Effect::Reap { identity } => self.reap = Some(identity.clone()),
                Effect::Signal { identity, .. } => {
                    prop_assert_eq!(identity.start_time, u64::from(identity.pid) * 10);
                }
                Effect::Arm { timer, attempt: armed_for, .. } => {
                    prop_assert_eq!(*armed_for, attempt);
                    self.armed.insert(name(*timer));
                }
                Effect::Disarm(timer) => {
                    self.armed.remove(name(*timer));
                }
                Effect::Became(_) => {}
            }
        }
        Ok(())
    }

    /// The `choice`-th thing that could happen now.
    fn happen(&mut self, choice: u8, attempt: u64) -> Option<Event> {
        let failed = choice & 0x80 != 0;
        Some(match choice % 16 {
            0 => Event::Start,
            1 => Event::Stop { deadline: None },
            2 => Event::Retry,
            3 => Event::Recheck { within: Duration::from_secs(1) },
            4 if failed => Event::Vacant { attempt: self.occupied.take()? },
            4 => Event::Excuse,
            5 if choice & 0x40 != 0 => {
                let reason = "a stray".to_owned();
                Event::Occupied { attempt: self.prepare.take()?, reason }
            }
            5 => {
                let result = if failed { Err(PrepareError::Retry("no".into())) } else { Ok(()) };
                Event::Prepared { attempt: self.prepare.take()?, result }
            }
            6 => {
                let attempt = self.spawn.take()?;
                if failed {
                    return Some(Event::Spawned { attempt, result: Err(SpawnError::Retry("no".into())) });
                }
                self.next_pid += 1;
                self.live.insert(self.next_pid);
                Event::Spawned { attempt, result: Ok(process(self.next_pid)) }
            }
            7 => {
                let identity = self.discover.take()?;
                let address = "127.0.0.1:1".parse().map_err(|_| "two ports".to_owned());
                Event::Discovered { identity, result: if failed { Err("two ports".into()) } else { address } }
            }
            8 => {
                let identity = self.gate.take()?;
                let result = if failed { Err(GateError::Hopeless("no".into())) } else { Ok(()) };
                Event::Gate { identity, result }
            }
            9 => {
                let pid = *self.live.first()?;
                Event::Exited { identity: process(pid), status: ExitStatus::Code(1) }
            }
            10 => {
                let identity = self.reap.take()?;
                let result = if failed { Err("left".into()) } else { Ok(()) };
                if !failed {
                    self.live.remove(&identity.pid);
                }
                Event::Reaped { identity, result }
            }
            11 => self.fire(Timer::Gate, attempt)?,
            12 => self.fire(Timer::Stop, attempt)?,
            13 => Event::Adopt,
            14 => {
                let attempt = self.adopt.take()?;
                if failed {
                    return Some(Event::Adopted { attempt, found: None });
                }
                self.next_pid += 1;
                self.live.insert(self.next_pid);
                let (identity, is_placed) = (process(self.next_pid), choice & 0x40 == 0);
                Event::Adopted { attempt, found: Some(Found { identity, fits: true, is_placed }) }
            }
            _ => self.fire(if failed { Timer::Reap } else { Timer::Backoff }, attempt)?,
        })
    }

    /// An armed timer fires once.
    fn fire(&mut self, timer: Timer, attempt: u64) -> Option<Event> {
        self.armed.remove(name(timer)).then_some(Event::Timer { timer, attempt })
    }
}

fn name(timer: Timer) -> &'static str {
    match timer {
        Timer::Gate => "gate",
        Timer::Stop => "stop",
        Timer::Repeat => "repeat",
        Timer::Backoff => "backoff",
        Timer::Reap => "reap",
    }
}

proptest! {
    #[test]
    fn no_history_makes_two_processes_or_a_wait_without_a_deadline(choices in prop::collection::vec(any::<u8>(), 1..400)) {
        let (mut child, mut world, mut now) = (child(), World::default(), Instant::now());
        for choice in choices {
            now += Duration::from_millis(137);
            let Some(event) = world.happen(choice, child.attempt()) else { continue };
            let effects = child.step(event, now);
            world.obey(&effects, child.attempt())?;
            prop_assert!(world.live.len() <= 1, "two live processes: {:?}", world.live);
            let waiting = match child.phase {
                Phase::Adopting { .. } | Phase::Preparing | Phase::Spawning | Phase::Discovering { .. } | Phase::Gating { .. } => Some("gate"),
                Phase::Cancelling { .. } | Phase::Ending { .. } => Some("stop"),
                Phase::Reaping { .. } => Some("reap"),
                Phase::Backoff => Some("backoff"),
                _ => None,
            };
            if let Some(timer) = waiting {
                prop_assert!(world.armed.contains(timer), "{:?} waits without a deadline", child.phase);
            }
        }
    }

    /// From anywhere, a stop with a host that answers ends down, with nothing alive.
    #[test]
    fn a_stop_always_ends_down(choices in prop::collection::vec(any::<u8>(), 0..120)) {
        let (mut child, mut world, now) = (child(), World::default(), Instant::now());
        for choice in choices {
            if let Some(event) = world.happen(choice, child.attempt()) {
                let effects = child.step(event, now);
                world.obey(&effects, child.attempt())?;
            }
        }
        let effects = child.step(Event::Stop { deadline: None }, now);
        world.obey(&effects, child.attempt())?;
        for answer in [14u8, 5, 6, 9, 10, 10, 10].into_iter().cycle().take(28) {
            if let Some(event) = world.happen(answer, child.attempt()) {
                let effects = child.step(event, now);
                world.obey(&effects, child.attempt())?;
            }
            let effects = child.step(Event::Timer { timer: Timer::Reap, attempt: child.attempt() }, now);
            world.obey(&effects, child.attempt())?;
        }
        prop_assert_eq!(child.state(), ChildState::Down);
        prop_assert!(world.live.is_empty());
    }
}
