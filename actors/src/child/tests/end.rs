//! An end that nobody asked for, and what the restart policy makes of it.

use super::*;

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
