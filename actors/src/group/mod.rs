//! Independent chains side by side, some of them after others: what `berth supervise` runs. Pure.
//!
//! A chain that comes after nothing starts at once; one that comes after others starts when each of them has been ready.
//! From then on nobody's death is its business: each chain restarts by its own policy. Going down is strictly one at a time,
//! the last one first, so that nothing is ever taken from under what was started on it. Only one that cannot be ended within
//! its time is passed over: the others must not run on for ever because of it.
//!
//! [`actor::GroupActor`] feeds it and carries out what it says. Members stand in an order in which each comes behind those
//! it waits for; [`Group::new`] insists on that.

pub mod actor;
#[cfg(test)]
mod tests;

use crate::status::ChainState;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// An earlier daemon left something of this one: it goes on running, whatever it comes after. Before `Up`.
    Adopt(usize),
    /// Everything should run.
    Up,
    /// Nothing should run.
    Down,
    /// An operator wants this one to run.
    Start(usize),
    /// An operator wants this one to stop. What was started after it keeps running.
    Stop(usize),
    /// An operator wants this one tried again after a give-up.
    Retry(usize),
    /// The time in which this one should have stopped is over.
    Overdue(usize),
    Chain {
        index: usize,
        state: ChainState,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Adopt(usize),
    Up(usize),
    Down(usize),
    Retry(usize),
}

/// A list of members that cannot be a group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("member {member} comes after member {after}, which does not come before it")]
pub struct OutOfOrder {
    pub member: usize,
    pub after: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Idle,
    Up,
    /// Members from this one on are down, or had their time; the one before it is told to stop, or is stopping.
    Down {
        from: usize,
    },
}

#[derive(Debug)]
struct Member {
    after: Box<[usize]>,
    /// Who waits for this one.
    before: Vec<usize>,
    /// It should run while the group is up.
    wanted: bool,
    /// It was told to run, and not to stop since.
    told: bool,
    /// As it last told, or as it was last told to become.
    state: ChainState,
    /// It was ready since it was last started: whoever waits for it may start.
    was_ready: bool,
}

/// See the module.
#[derive(Debug)]
pub struct Group {
    members: Vec<Member>,
    course: Course,
}

impl Group {
    /// `after[i]`: the members that member `i` waits for, each of them before it in the list.
    pub fn new(after: Vec<Vec<usize>>) -> Result<Self, OutOfOrder> {
        let mut members: Vec<Member> = Vec::with_capacity(after.len());
        for (index, after) in after.into_iter().enumerate() {
            for &earlier in &after {
                let Some(earlier) = members.get_mut(earlier) else {
                    return Err(OutOfOrder { member: index, after: earlier });
                };
                earlier.before.push(index);
            }
            members.push(Member {
                after: after.into(),
                before: Vec::new(),
                wanted: true,
                told: false,
                state: ChainState::Down,
                was_ready: false,
            });
        }
        Ok(Self { members, course: Course::Idle })
    }

    /// Feeds one event; returns what to do, in order.
    pub fn step(&mut self, event: Event) -> Vec<Effect> {
        match event {
            Event::Adopt(index) if self.course == Course::Idle => {
                let member = &mut self.members[index];
                member.told = true;
                member.state = ChainState::Starting;
                vec![Effect::Adopt(index), Effect::Up(index)]
            }
            Event::Adopt(_) => Vec::new(),
            Event::Up if self.course == Course::Idle => {
                self.course = Course::Up;
                (0..self.members.len()).filter_map(|index| self.start(index)).collect()
            }
            Event::Up => Vec::new(),
            Event::Down => {
                if !self.is_going_down() {
                    self.course = Course::Down { from: self.members.len() };
                }
                self.descend().into_iter().collect()
            }
            Event::Start(index) => {
                self.members[index].wanted = true;
                self.start(index).into_iter().collect()
            }
            Event::Stop(index) => {
                self.members[index].wanted = false;
                self.stop(index).into_iter().collect()
            }
            Event::Retry(index) => {
                let member = &mut self.members[index];
                if !member.told {
                    return Vec::new();
                }
                member.state = ChainState::Starting;
                vec![Effect::Retry(index)]
            }
            Event::Overdue(index) => {
                if self.awaited() == Some(index) {
                    self.course = Course::Down { from: index };
                }
                self.descend().into_iter().collect()
            }
            Event::Chain { index, state } => self.heard(index, state),
        }
    }

    /// Whether it comes up no more.
    pub fn is_going_down(&self) -> bool {
        matches!(self.course, Course::Down { .. })
    }

    /// Whether the way down is over: nobody is waited for any more.
    pub fn has_descended(&self) -> bool {
        self.course == Course::Down { from: 0 }
    }

    /// Whether it is, and left nobody alive.
    pub fn is_down(&self) -> bool {
        self.has_descended() && self.members.iter().all(|member| member.state == ChainState::Down)
    }

    /// Whose stop the way down waits for.
    pub fn awaited(&self) -> Option<usize> {
        let Course::Down { from } = self.course else { return None };
        from.checked_sub(1)
    }

    pub fn state(&self, index: usize) -> ChainState {
        self.members[index].state
    }

    /// Whether it was told to run and not to stop since.
    pub fn is_told(&self, index: usize) -> bool {
        self.members[index].told
    }

    /// The first member that should run and has given up; else whether every one that should run is ready.
    pub fn arrival(&self) -> Result<bool, usize> {
        let wanted = || self.members.iter().enumerate().filter(|(_, member)| member.wanted);
        if let Some((index, _)) = wanted().find(|(_, member)| has_given_up(member.state)) {
            return Err(index);
        }
        // What is done was asked to end by itself, and is where it should be.
        let is_there = |state| matches!(state, ChainState::Ready | ChainState::Done);
        Ok(self.course == Course::Up && wanted().all(|(_, member)| is_there(member.state)))
    }

    fn heard(&mut self, index: usize, state: ChainState) -> Vec<Effect> {
        self.members[index].state = state;
        if self.is_going_down() {
            return self.descend().into_iter().collect();
        }
        let member = &mut self.members[index];
        if state != ChainState::Ready || member.was_ready {
            return Vec::new();
        }
        member.was_ready = true;
        let waiting = std::mem::take(&mut member.before);
        let effects = waiting.iter().filter_map(|&index| self.start(index)).collect();
        self.members[index].before = waiting;
        effects
    }

    fn start(&mut self, index: usize) -> Option<Effect> {
        let member = &self.members[index];
        let may_start = self.course == Course::Up && member.wanted && !member.told;
        if !may_start || !member.after.iter().all(|&earlier| self.members[earlier].was_ready) {
            return None;
        }
        let member = &mut self.members[index];
        member.told = true;
        member.state = ChainState::Starting;
        Some(Effect::Up(index))
    }

    fn stop(&mut self, index: usize) -> Option<Effect> {
        let member = &mut self.members[index];
        if !member.told {
            return None;
        }
        member.told = false;
        member.was_ready = false;
        member.state = ChainState::Stopping;
        Some(Effect::Down(index))
    }

    /// The next one to stop; none while one is stopping, nor when all are down.
    fn descend(&mut self) -> Option<Effect> {
        let Course::Down { mut from } = self.course else { return None };
        let mut effect = None;
        while let Some(index) = from.checked_sub(1) {
            effect = self.stop(index);
            if effect.is_some() || self.members[index].state != ChainState::Down {
                break;
            }
            from = index;
        }
        self.course = Course::Down { from };
        effect
    }
}

pub(crate) fn has_given_up(state: ChainState) -> bool {
    matches!(state, ChainState::Degraded | ChainState::Refused)
}
