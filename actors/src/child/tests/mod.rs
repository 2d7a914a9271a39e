//! Sentences about one child, and its properties under random histories.

mod adopt;
mod end;
mod histories;
mod start;
mod stop;

use super::*;
use crate::host::{GateError, PrepareError, SpawnError};
use crate::policy::Restart;
use crate::spec::Signal;

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

/// Drives a started child to its gate as `process(pid)`.
fn to_its_gate(child: &mut Child, pid: u32, now: Instant) {
    let attempt = child.attempt();
    child.step(Event::Prepared { attempt, result: Ok(()) }, now);
    child.step(Event::Spawned { attempt, result: Ok(process(pid)) }, now);
    let address = "127.0.0.1:4000".parse().unwrap();
    child.step(Event::Discovered { identity: process(pid), result: Ok(address) }, now);
}
