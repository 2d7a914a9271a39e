//! A stop, wherever it comes.

use super::*;

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

#[test]
fn a_stop_while_its_place_is_held_ends_down_at_once() {
    let (mut child, now) = (child(), Instant::now());
    child.step(Event::Start, now);
    child.step(Event::Occupied { attempt: 1, reason: "held".to_owned() }, now);
    assert_eq!(became(&child.step(Event::Stop { deadline: None }, now)), [&Life::Down]);
    assert_eq!(child.step(Event::Vacant { attempt: 1 }, now), []);
}
