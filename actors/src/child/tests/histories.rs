//! Any history of answers, good or bad, in any order.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

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
