//! A chain as the root holds it: its supervisor, the goal it was given, and what it last told.
//!
//! Goals and news cross on their way. News carries how many goals its chain had heard; news from before the latest goal is
//! about another wish and is dropped: the chain tells again once it has heard.

use crate::host::Running;
use crate::status::ChainState;
use crate::supervisor::{ChainNews, Goal, Supervisor};
use actix::prelude::*;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Owned {
    addr: Addr<Supervisor>,
    stop_bound: Duration,
    /// The goal it was last given.
    up: bool,
    goals: u64,
    state: ChainState,
    reason: Option<String>,
    serving: BTreeMap<String, Running>,
}

impl Owned {
    pub(super) fn new(addr: Addr<Supervisor>, stop_bound: Duration) -> Self {
        Self {
            addr,
            stop_bound,
            up: false,
            goals: 0,
            state: ChainState::Down,
            reason: None,
            serving: BTreeMap::new(),
        }
    }

    /// The longest its stop may take.
    pub(super) fn stop_bound(&self) -> Duration {
        self.stop_bound
    }

    pub(super) fn addr(&self) -> &Addr<Supervisor> {
        &self.addr
    }

    pub(super) fn wants_up(&self) -> bool {
        self.up
    }

    pub(super) fn state(&self) -> ChainState {
        self.state
    }

    pub(super) fn reason(&self) -> String {
        self.reason.clone().unwrap_or_default()
    }

    pub(super) fn serving(&self, component: &str) -> Option<&Running> {
        self.serving.get(component)
    }

    pub(super) fn is_down(&self) -> bool {
        !self.up && self.state == ChainState::Down
    }

    /// Or is done: it will not be ready by itself.
    pub(super) fn gave_up(&self) -> bool {
        self.up && self.state.needs_an_operator()
    }

    /// On its first way up. One that failed once is no longer: it may try for ever, and must not hold others up.
    pub(super) fn is_starting(&self) -> bool {
        self.up && self.state == ChainState::Starting && self.reason.is_none()
    }

    /// Takes charge of what an earlier daemon left; the chain stops it again unless [`Self::go_up`] follows.
    pub(super) fn adopt(&mut self) {
        self.aim(Goal::Adopt, ChainState::Stopping);
    }

    /// What was adopted is not wanted: `hurry` as in [`Self::go_down`].
    pub(super) fn give_up_adopted(&mut self, hurry: Option<Duration>) {
        self.aim(Goal::Down { hurry }, ChainState::Stopping);
    }

    pub(super) fn go_up(&mut self) {
        if !self.up {
            self.up = true;
            self.aim(Goal::Up, ChainState::Starting);
        }
    }

    /// Said once: the chain answers every goal, and the root settles after every answer.
    pub(super) fn go_down(&mut self, hurry: Option<Duration>) {
        if self.up {
            self.up = false;
            self.aim(Goal::Down { hurry }, ChainState::Stopping);
        }
    }

    pub(super) fn retry(&mut self) {
        self.aim(Goal::Retry, ChainState::Starting);
    }

    pub(super) fn restart_step(&mut self, component: &str) {
        self.aim(Goal::Restart { component: component.to_owned() }, ChainState::Recovering);
    }

    pub(super) fn dismiss(self) {
        self.addr.do_send(Goal::Dismiss);
    }

    fn aim(&mut self, goal: Goal, state: ChainState) {
        self.goals += 1;
        self.state = state;
        self.reason = None;
        self.addr.do_send(goal);
    }

    /// Takes what a chain tells; false: it is out of date.
    pub(super) fn hear(&mut self, news: &ChainNews) -> bool {
        if news.goals_heard != self.goals {
            return false;
        }
        self.state = news.state;
        self.reason.clone_from(&news.reason);
        self.serving.clone_from(&news.serving);
        true
    }
}
