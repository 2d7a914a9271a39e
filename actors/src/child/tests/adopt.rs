//! What an earlier daemon left.

use super::*;

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
