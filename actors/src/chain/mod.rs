//! Ordered steps: started in order, each behind the gate of the one before; stopped in exact reverse. Pure.
//!
//! A death does the least that is safe. The dead step restarts in place, by its own policy. Every later step says what
//! that means to it ([`Reaction`]): `Restart` stops it before the dead one starts again and starts it after (rest_for_one,
//! the default); `RideThrough` leaves it running and looks at its gate again. A step that restarts for another's sake counts
//! as dead to the steps behind it.
//!
//! The whole machine is one list and one question, asked after every event: what is the next thing to do? Stops come
//! first, from the end, one at a time: while one is unfinished nothing starts. Then the first step that is not ready gets
//! its start. There is no other order in which anything can happen.
//!
//! A step that ended cleanly where its policy leaves it at that (`Done`) is gone, as in OTP: what runs behind it runs on. But
//! its gate is shut, so nothing behind it starts until an operator's retry.
//!
//! What an earlier daemon left is adopted first, in order; nothing starts or stops meanwhile. A step whose process did not
//! survive, or no longer fits, then counts as one that died under those behind it.
//!
//! Orders and news cross on their way. So a stage changes with the order, not with its echo; a step that was told to stop
//! is heard again when it is down; and what an operator must decide (a give-up, a refusal) no neighbour's death undoes.

#[cfg(test)]
mod crossings;
#[cfg(test)]
mod tests;

use crate::child::Life;
use crate::spec::{Reaction, Role, Seam, Step};
use crate::status::ChainState;
use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Take charge of what an earlier daemon left; before the first `Up`.
    Adopt,
    /// Everything should run.
    Up,
    /// Nothing should run.
    Down,
    /// Try again what gave up or was refused.
    Retry,
    /// Stop and start this step, with what its death would mean to those behind it. Obeyed when it is ready.
    Restart(usize),
    Child {
        index: usize,
        life: Life,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Adopt(usize),
    Start(usize),
    Stop(usize),
    Recheck(usize, Duration),
    Excuse(usize),
    Retry(usize),
    Became { state: ChainState, reason: Option<String> },
}

/// A list of steps that cannot be a chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    #[error("{0} has no identity guard before it: a Kubernetes step must be guarded (ErrNoGuardSeam)")]
    NoGuardSeam(String),
    #[error("the chain has two steps called {0}")]
    DuplicateStep(String),
    #[error("the chain has no steps")]
    Empty,
}

/// [`Life`] without its texts: what the order of things depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Down,
    /// It looks for what an earlier daemon left of it.
    Adopting,
    Starting,
    Ready,
    /// It rode through an earlier step's death, and its gate is looked at again.
    Rechecking,
    /// It was told to stop. Whatever it said before it heard that is late: only `Down` counts.
    Stopping,
    Dead,
    Due,
    /// It ended, and its policy leaves it at that; it is being reaped.
    Ended,
    Done,
    Failed,
    Refused,
}

#[derive(Debug)]
struct Link {
    name: String,
    /// Reactions to the steps before this one, in their order.
    reactions: Vec<Reaction>,
    start_deadline: Duration,
    stage: Stage,
    /// It restarts for an earlier step's sake: stopped first, then started in its turn.
    must_stop: bool,
    /// It rode through an earlier step's death: its gate is looked at once everything before it is ready.
    recheck: Option<Duration>,
    reason: Option<String>,
    /// Why what is left of it cannot be ended yet.
    stuck: Option<String>,
}

/// Starts in a row that were given up for an earlier step's sake: what a hang looks like from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hangs {
    pub count: u32,
    /// What the last one was.
    pub last: String,
}

#[derive(Debug)]
pub struct Chain {
    links: Vec<Link>,
    up: bool,
    /// The step that is to look next for what an earlier daemon left of it.
    adopting: Option<usize>,
    /// Since it was last down: decides between `Starting` and `Recovering`.
    was_ready: bool,
    hangs: Hangs,
    reported: (ChainState, Option<String>),
}

impl Chain {
    /// Checks the steps; the chain is down.
    pub fn new(steps: &[Step]) -> Result<Self, ChainError> {
        if steps.is_empty() {
            return Err(ChainError::Empty);
        }
        let mut seen = BTreeSet::new();
        for step in steps {
            if !seen.insert(&step.component) {
                return Err(ChainError::DuplicateStep(step.component.clone()));
            }
            if step.role == Role::Kubernetes && matches!(step.seam, Seam::Open) {
                return Err(ChainError::NoGuardSeam(step.component.clone()));
            }
        }
        let links = steps
            .iter()
            .enumerate()
            .map(|(index, step)| Link {
                name: step.component.clone(),
                reactions: steps[..index]
                    .iter()
                    .map(|earlier| step.reaction_to(&earlier.component))
                    .collect(),
                start_deadline: step.start_deadline,
                stage: Stage::Down,
                must_stop: false,
                recheck: None,
                reason: None,
                stuck: None,
            })
            .collect();
        Ok(Self {
            links,
            up: false,
            adopting: None,
            was_ready: false,
            hangs: Hangs::default(),
            reported: (ChainState::Down, None),
        })
    }

    pub fn state(&self) -> (ChainState, Option<String>) {
        self.reported.clone()
    }

    /// Since it was last down or ready.
    pub fn hangs(&self) -> &Hangs {
        &self.hangs
    }

    /// Whether a step behind this one has a process, or is about to: it knows where this one listened.
    pub fn has_dependants(&self, index: usize) -> bool {
        let idle =
            |link: &Link| matches!(link.stage, Stage::Down | Stage::Done | Stage::Failed | Stage::Refused);
        !self.links[index + 1..].iter().all(idle)
    }

    /// Feeds one event; returns what to do, in order.
    pub fn step(&mut self, event: Event) -> Vec<Effect> {
        let mut effects = Vec::new();
        match event {
            Event::Adopt => self.adopt(),
            Event::Up => self.up = true,
            Event::Down => {
                self.up = false;
                self.was_ready = false;
                self.hangs = Hangs::default();
            }
            Event::Retry => effects.extend(self.retry()),
            Event::Restart(index) => effects.extend(self.restart(index)),
            Event::Child { index, life } => effects.extend(self.child(index, life)),
        }
        effects.extend(self.go_on_adopting());
        effects.extend(self.settle());
        effects.extend(self.report());
        effects
    }

    fn child(&mut self, index: usize, life: Life) -> Vec<Effect> {
        let link = &mut self.links[index];
        link.stuck = None;
        if let Life::Stuck { reason } | Life::Blocked { reason } = life {
            link.stuck = Some(reason);
            return Vec::new();
        }
        if link.stage == Stage::Stopping && life != Life::Down {
            return Vec::new();
        }
        match life {
            Life::Starting | Life::Stopping | Life::Stuck { .. } | Life::Blocked { .. } => {}
            Life::Suspects { step } => return self.suspect(index, &step),
            Life::Adopted { fits } => {
                link.stage = Stage::Ready;
                link.must_stop = !fits;
                link.recheck = Some(link.start_deadline);
            }
            Life::Down => {
                link.stage = Stage::Down;
                link.must_stop = false;
                link.recheck = None;
                link.reason = None;
            }
            Life::Ready { .. } => {
                link.stage = Stage::Ready;
                link.reason = None;
            }
            Life::Unguarded if link.stage == Stage::Ready => {
                link.recheck = Some(link.start_deadline.max(link.recheck.unwrap_or_default()));
            }
            Life::Unguarded => {}
            Life::Due => link.stage = Stage::Due,
            Life::Ended => {
                link.stage = Stage::Ended;
                link.recheck = None;
            }
            Life::Done { how } => {
                link.stage = Stage::Done;
                link.must_stop = false;
                link.reason = Some(format!("{how}, and its policy leaves it at that"));
            }
            Life::Failed { reason, refused } => {
                link.stage = if refused { Stage::Refused } else { Stage::Failed };
                link.must_stop = false;
                link.reason = Some(reason);
            }
            // Something before it died again: its gate will have another look, and this one proves nothing.
            Life::Red if link.recheck.is_some() => {}
            Life::Red => {
                link.must_stop = true;
                return self.spread(index);
            }
            Life::Dead { failure } => {
                link.stage = Stage::Dead;
                link.recheck = None;
                link.reason = Some(failure);
                return self.spread(index);
            }
        }
        Vec::new()
    }

    /// The step at `index` waited in vain for `step`, which restarts before it. That `index` had to die for it is charged to
    /// its budget all the same: else the two could restart for ever.
    fn suspect(&mut self, index: usize, step: &str) -> Vec<Effect> {
        self.hangs.count += 1;
        self.hangs.last = self.links[index].reason.clone().unwrap_or_default();
        let Some(upstream) = self.links[..index].iter().position(|link| link.name == step) else {
            return Vec::new();
        };
        if self.links[upstream].stage != Stage::Ready {
            return Vec::new();
        }
        self.links[upstream].must_stop = true;
        let mut effects = self.spread(upstream);
        effects.retain(|effect| *effect != Effect::Excuse(index));
        // Its own end is judged all the same, also where it restarts with `step`: stopped for that, it would begin anew for ever.
        self.links[index].must_stop = false;
        effects
    }

    fn retry(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        for index in 0..self.links.len() {
            let link = &mut self.links[index];
            if matches!(link.stage, Stage::Done | Stage::Failed | Stage::Refused) {
                // Its child answers with `Due`; until then it is no longer an end.
                link.stage = Stage::Starting;
                link.reason = None;
                effects.push(Effect::Retry(index));
                // What was left running behind an end that nothing followed must not be there at its start.
                effects.extend(self.spread(index));
            }
        }
        effects
    }

    fn restart(&mut self, index: usize) -> Vec<Effect> {
        let link = &mut self.links[index];
        if !matches!(link.stage, Stage::Ready | Stage::Rechecking) {
            return Vec::new();
        }
        link.must_stop = true;
        self.spread(index)
    }

    /// Once, before anything runs: a chain that knows its processes has none left to find.
    fn adopt(&mut self) {
        if self.adopting.is_none() && !self.up && self.links.iter().all(|link| link.stage == Stage::Down) {
            self.adopting = Some(0);
        }
    }

    /// One step after the other: what a later one was started with depends on where the earlier ones listen.
    fn go_on_adopting(&mut self) -> Vec<Effect> {
        let Some(next) = self.adopting else { return Vec::new() };
        if self.links.iter().any(|link| link.stage == Stage::Adopting) {
            return Vec::new();
        }
        if let Some(link) = self.links.get_mut(next) {
            link.stage = Stage::Adopting;
            self.adopting = Some(next + 1);
            return vec![Effect::Adopt(next)];
        }
        self.adopting = None;
        let is_gone = |link: &Link| link.stage != Stage::Ready || link.must_stop;
        let gone: Vec<usize> = (0..self.links.len()).filter(|&at| is_gone(&self.links[at])).collect();
        gone.into_iter().flat_map(|index| self.spread(index)).collect()
    }

    /// What the death (or restart) of `first` means to the steps behind it.
    fn spread(&mut self, first: usize) -> Vec<Effect> {
        let mut gone = BTreeSet::from([first]);
        let mut excused = Vec::new();
        for index in first + 1..self.links.len() {
            let link = &mut self.links[index];
            let at_rest = [Stage::Down, Stage::Ended, Stage::Done, Stage::Failed, Stage::Refused];
            if at_rest.contains(&link.stage) {
                continue;
            }
            let ride = gone.iter().try_fold(Duration::ZERO, |longest, &dead| match link.reactions[dead] {
                Reaction::RideThrough(within) => Some(longest.max(within)),
                Reaction::Restart => None,
            });
            match ride {
                Some(within) => link.recheck = Some(within.max(link.recheck.unwrap_or_default())),
                None => {
                    link.must_stop = true;
                    gone.insert(index);
                }
            }
            excused.push(Effect::Excuse(index));
        }
        excused
    }

    /// The next thing to do, if nothing has to be waited for.
    fn settle(&mut self) -> Option<Effect> {
        if self.adopting.is_some() {
            return None;
        }
        let up = self.up;
        let unwanted = |link: &Link| (!up || link.must_stop) && link.stage != Stage::Down;
        if let Some(index) = self.links.iter().rposition(unwanted) {
            let link = &mut self.links[index];
            if link.stage == Stage::Stopping {
                return None;
            }
            link.stage = Stage::Stopping;
            return Some(Effect::Stop(index));
        }
        if !up {
            return None;
        }
        for (index, link) in self.links.iter_mut().enumerate() {
            match (link.stage, link.recheck.take()) {
                (Stage::Ready, None) => {}
                (Stage::Ready | Stage::Rechecking, Some(within)) => {
                    link.stage = Stage::Rechecking;
                    return Some(Effect::Recheck(index, within));
                }
                (Stage::Down | Stage::Due, _) => {
                    link.stage = Stage::Starting;
                    return Some(Effect::Start(index));
                }
                (_, recheck) => {
                    link.recheck = recheck;
                    return None;
                }
            }
        }
        self.was_ready = true;
        self.hangs = Hangs::default();
        None
    }

    fn report(&mut self) -> Option<Effect> {
        let now = self.judge();
        if now == self.reported {
            return None;
        }
        self.reported = now.clone();
        Some(Effect::Became { state: now.0, reason: now.1 })
    }

    fn judge(&self) -> (ChainState, Option<String>) {
        let at = |stage: Stage| self.links.iter().find(|link| link.stage == stage);
        let because = |link: &Link| {
            link.stuck.as_ref().or(link.reason.as_ref()).map(|reason| format!("{}: {reason}", link.name))
        };
        if !self.up {
            if self.links.iter().all(|link| link.stage == Stage::Down) {
                return (ChainState::Down, None);
            }
            let stuck = self.links.iter().rfind(|link| link.stuck.is_some());
            return (ChainState::Stopping, stuck.and_then(because));
        }
        if let Some(link) = at(Stage::Refused) {
            return (ChainState::Refused, because(link));
        }
        if let Some(link) = at(Stage::Failed) {
            return (ChainState::Degraded, because(link));
        }
        match self.links.iter().find(|link| link.stage != Stage::Ready || link.recheck.is_some()) {
            None => (ChainState::Ready, None),
            Some(link) if link.stage == Stage::Done => (ChainState::Done, because(link)),
            Some(link) if self.was_ready => (ChainState::Recovering, because(link)),
            Some(link) => (ChainState::Starting, because(link)),
        }
    }
}
