//! The way up, and a gate that is looked at again.

use super::*;

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
fn a_gate_that_blames_an_earlier_step_is_killed_as_well_and_names_it_after_its_death() {
    let (mut child, now) = (child(), Instant::now());
    child.step(Event::Start, now);
    child.step(Event::Prepared { attempt: 1, result: Ok(()) }, now);
    child.step(Event::Spawned { attempt: 1, result: Ok(process(1)) }, now);
    child.step(Event::Discovered { identity: process(1), result: Ok("127.0.0.1:1".parse().unwrap()) }, now);
    let hang = Err(GateError::Upstream { step: "kine".into(), reason: "hung in its start".into() });
    let effects = child.step(Event::Gate { identity: process(1), result: hang }, now);
    assert!(effects.contains(&Effect::Reap { identity: process(1) }));
    let [Life::Dead { failure }, Life::Suspects { step }] = became(&effects)[..] else {
        panic!("{effects:?}")
    };
    assert_eq!((failure.as_str(), step.as_str()), ("hung in its start", "kine"));
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
fn a_process_that_cannot_be_ended_holds_up_the_preparation_for_as_long_as_it_lives() {
    let (mut child, now) = (child(), Instant::now());
    child.step(Event::Start, now);
    let reason = "kine (pid 7) of an earlier daemon outlives SIGKILL".to_owned();
    let effects = child.step(Event::Occupied { attempt: 1, reason: reason.clone() }, now);
    let blocked = Effect::Became(Life::Blocked { reason: reason.clone() });
    assert_eq!(effects, [Effect::Disarm(Timer::Gate), blocked, Effect::AwaitVacancy { attempt: 1 }]);
    assert_eq!((child.state(), child.waits_for()), (ChildState::Starting, Some(reason)));
    assert_eq!(child.step(Event::Vacant { attempt: 0 }, now), [], "of an earlier start");
    let effects = child.step(Event::Vacant { attempt: 1 }, now);
    assert_eq!(effects.last(), Some(&Effect::Prepare { attempt: 1 }));
    assert_eq!(became(&effects), [&Life::Starting]);
    assert_eq!(child.restarts(), 0);
}
