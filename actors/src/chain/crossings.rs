//! A chain and its real children with a mailbox each way, in every order the messages may arrive in.
//!
//! The machines' own tests feed them one at a time; here orders and news cross on their way, processes die meanwhile, the
//! daemon dies and adopts what it left, and an operator changes her mind.

use super::tests::tenant;
use super::{Chain, Effect, Event};
use crate::child::{Child, Effect as Act, Event as Happening, Found, Life, Timer};
use crate::host::{ExitStatus, GateError, PrepareError};
use crate::identity::Identity;
use crate::policy::Restart;
use crate::spec::{Reaction, Step};
use crate::status::{ChainState, ChildState};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// One child, its mailbox, and what its host still owes it.
#[derive(Debug)]
struct Seat {
    child: Child,
    orders: VecDeque<Happening>,
    owed: VecDeque<Happening>,
    timers: Vec<(Timer, u64)>,
    live: Option<Identity>,
}

#[derive(Debug)]
struct House {
    steps: Vec<Step>,
    chain: Chain,
    up: bool,
    seats: Vec<Seat>,
    news: VecDeque<(usize, Life)>,
    now: Instant,
    births: u32,
}

impl House {
    fn new() -> Self {
        let mut steps = tenant();
        // Some of the deaths below are clean: they end what nothing follows.
        for step in &mut steps {
            step.restart.restart = Restart::Transient(vec![0]);
        }
        let seat = |step: &Step| Seat {
            child: Child::new(step.restart.clone(), step.stop, step.start_deadline, false, 7),
            orders: VecDeque::new(),
            owed: VecDeque::new(),
            timers: Vec::new(),
            live: None,
        };
        let (chain, seats) = (Chain::new(&steps).unwrap(), steps.iter().map(seat).collect());
        Self { steps, chain, up: false, seats, news: VecDeque::new(), now: Instant::now(), births: 0 }
    }

    fn tell_chain(&mut self, event: Event) -> Result<(), TestCaseError> {
        match event {
            Event::Up => self.up = true,
            Event::Down => self.up = false,
            _ => {}
        }
        for effect in self.chain.step(event) {
            let (index, order) = match effect {
                Effect::Adopt(index) => (index, Happening::Adopt),
                Effect::Start(index) => (index, Happening::Start),
                Effect::Stop(index) => {
                    let behind = self.seats[index + 1..].iter().any(|seat| seat.live.is_some());
                    prop_assert!(self.up || !behind, "{index} stops before what stands on it");
                    (index, Happening::Stop { deadline: None })
                }
                Effect::Recheck(index, within) => (index, Happening::Recheck { within }),
                Effect::Excuse(index) => (index, Happening::Excuse),
                Effect::Retry(index) => (index, Happening::Retry),
                Effect::Became { .. } => continue,
            };
            self.seats[index].orders.push_back(order);
        }
        Ok(())
    }

    fn tell_child(&mut self, index: usize, event: Happening) -> Result<(), TestCaseError> {
        for act in self.seats[index].child.step(event, self.now) {
            let seat = &mut self.seats[index];
            match act {
                Act::Adopt { attempt } => {
                    let found = seat.live.clone();
                    let found = found.map(|identity| Found { identity, fits: true, is_placed: true });
                    seat.owed.push_back(Happening::Adopted { attempt, found });
                }
                Act::Prepare { attempt } => {
                    seat.owed.push_back(Happening::Prepared { attempt, result: Ok(()) });
                }
                Act::AwaitVacancy { .. } => prop_assert!(false, "nothing here holds a place"),
                Act::Abandon => seat.owed.retain(|event| !matches!(event, Happening::Prepared { .. })),
                Act::Spawn { attempt } => self.give_birth(index, attempt)?,
                Act::Discover { .. } => prop_assert!(false, "nothing here listens"),
                Act::AwaitGate { identity } => {
                    seat.owed.retain(|event| !matches!(event, Happening::Gate { .. }));
                    seat.owed.push_back(Happening::Gate { identity, result: Ok(()) });
                }
                Act::Signal { identity, .. } => self.die(index, &identity),
                Act::Reap { identity } => {
                    self.die(index, &identity);
                    self.seats[index].owed.push_back(Happening::Reaped { identity, result: Ok(()) });
                }
                Act::Arm { timer, attempt, .. } => {
                    seat.timers.retain(|(armed, _)| *armed != timer);
                    seat.timers.push((timer, attempt));
                }
                Act::Disarm(timer) => {
                    seat.timers.retain(|(armed, _)| *armed != timer);
                    if timer == Timer::Gate {
                        seat.owed.retain(|event| !matches!(event, Happening::Gate { .. }));
                    }
                }
                Act::Became(life) => self.news.push_back((index, life)),
            }
        }
        Ok(())
    }

    fn give_birth(&mut self, index: usize, attempt: u64) -> Result<(), TestCaseError> {
        for (later, seat) in self.seats.iter().enumerate().skip(index + 1) {
            let rides = self.steps[later].reaction_to(&self.steps[index].component) != Reaction::Restart;
            prop_assert!(
                rides || seat.live.is_none(),
                "{index} starts under {later}, which must not live through it"
            );
        }
        prop_assert!(self.seats[index].live.is_none(), "a second process of {index}");
        self.births += 1;
        let pid = self.births;
        let identity = Identity { boot_id: "boot".into(), pid, start_time: u64::from(pid) };
        self.seats[index].live = Some(identity.clone());
        self.seats[index].owed.push_back(Happening::Spawned { attempt, result: Ok(identity) });
        Ok(())
    }

    fn die(&mut self, index: usize, identity: &Identity) {
        let seat = &mut self.seats[index];
        if seat.live.as_ref() == Some(identity) {
            seat.live = None;
            let identity = identity.clone();
            let status =
                if identity.pid.is_multiple_of(3) { ExitStatus::Code(0) } else { ExitStatus::Signal(9) };
            seat.owed.push_back(Happening::Exited { identity, status });
        }
    }

    /// One thing happens: a message arrives, the host answers (badly, if so wished), a process dies, a timer fires.
    fn happen(&mut self, index: usize, what: u8, badly: bool) -> Result<(), TestCaseError> {
        match what {
            0 => {
                if let Some(order) = self.seats[index].orders.pop_front() {
                    self.tell_child(index, order)?;
                }
            }
            1 => {
                if let Some((index, life)) = self.news.pop_front() {
                    self.tell_chain(Event::Child { index, life })?;
                }
            }
            2 => {
                if let Some(mut event) = self.seats[index].owed.pop_front() {
                    match &mut event {
                        Happening::Prepared { result, .. } if badly => {
                            *result = Err(PrepareError::Retry("no".into()));
                        }
                        Happening::Gate { result, .. } if badly => {
                            *result = Err(if index.is_multiple_of(2) {
                                GateError::Upstream { step: "kine".into(), reason: "no".into() }
                            } else {
                                GateError::Hopeless("no".into())
                            });
                        }
                        Happening::Adopted { found: Some(found), .. } if badly => found.fits = false,
                        _ => {}
                    }
                    self.tell_child(index, event)?;
                }
            }
            3 if badly => {
                if let Some(identity) = self.seats[index].live.clone() {
                    self.die(index, &identity);
                }
            }
            4 => {
                let timers = &mut self.seats[index].timers;
                let due = timers.iter().position(|(timer, _)| badly || *timer == Timer::Backoff);
                if let Some((timer, attempt)) = due.map(|at| timers.remove(at)) {
                    self.tell_child(index, Happening::Timer { timer, attempt })?;
                }
            }
            7 => {
                if let Some(identity) = self.seats[index].live.clone() {
                    self.tell_child(index, Happening::Unguarded { identity })?;
                }
            }
            6 if badly => {
                self.crash()?;
                self.tell_chain(if index.is_multiple_of(2) { Event::Up } else { Event::Down })?;
            }
            5 if badly => self.tell_chain([Event::Up, Event::Down, Event::Retry][index % 3].clone())?,
            _ => {}
        }
        self.now += Duration::from_millis(700);
        Ok(())
    }

    /// The daemon dies and comes back: every message and timer is lost, every process lives on.
    fn crash(&mut self) -> Result<(), TestCaseError> {
        let lives: Vec<_> = self.seats.iter().map(|seat| seat.live.clone()).collect();
        let (now, births) = (self.now, self.births);
        *self = Self { now, births, ..Self::new() };
        for (seat, live) in self.seats.iter_mut().zip(lives) {
            seat.live = live;
        }
        self.tell_chain(Event::Adopt)
    }

    fn is_quiet(&self) -> bool {
        let waits = |seat: &Seat| seat.timers.iter().any(|(timer, _)| *timer == Timer::Backoff);
        let quiet = |seat: &Seat| seat.orders.is_empty() && seat.owed.is_empty() && !waits(seat);
        self.news.is_empty() && self.seats.iter().all(quiet)
    }

    /// The host answers well and every message arrives, until nothing is left to happen.
    fn calm(&mut self) -> Result<(), TestCaseError> {
        while !self.is_quiet() {
            for index in 0..self.seats.len() {
                for what in [0, 1, 2, 4] {
                    self.happen(index, what, false)?;
                }
            }
        }
        Ok(())
    }
}

fn events() -> impl Strategy<Value = Vec<(usize, u8, bool)>> {
    let what = prop_oneof![4 => Just(0u8), 6 => Just(1), 8 => Just(2), 1 => Just(3), 1 => Just(4), 1 => Just(5), 1 => Just(6), 1 => Just(7)];
    prop::collection::vec((0usize..5, what, prop::bool::weighted(0.3)), 0..500)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_crosses_a_chain_arrives_where_it_was_sent_last(events in events(), up: bool) {
        let mut house = House::new();
        house.tell_chain(Event::Up)?;
        house.calm()?;
        for (index, what, badly) in events {
            house.happen(index, what, badly)?;
        }
        house.tell_chain(if up { Event::Up } else { Event::Down })?;
        house.calm()?;
        house.tell_chain(Event::Retry)?;
        house.calm()?;
        let (chain, child) = if up { (ChainState::Ready, ChildState::Ready) } else { (ChainState::Down, ChildState::Down) };
        prop_assert_eq!(house.chain.state().0, chain, "{:#?}", house);
        for seat in &house.seats {
            prop_assert_eq!((seat.child.state(), seat.live.is_some()), (child, up), "{:#?}", house);
        }
    }
}
