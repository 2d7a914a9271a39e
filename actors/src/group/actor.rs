//! The actor that owns a group: one [`Supervisor`] per member, an operator's commands, and who waits for them.
//!
//! It stands where [`crate::root::Root`] stands in a daemon of clusters, and answers the same [`Command`]s. The order of things
//! is [`Group`]'s to decide.

mod down;
#[cfg(test)]
mod tests;

use super::{Effect, Event, Group, has_given_up};
use crate::child::actor::Outside;
use crate::descent;
use crate::host::Accounted;
use crate::identity::ComponentId;
use crate::message::{Command, Refusal, Reply, ServiceOrder};
use crate::root::WhenDown;
use crate::root::waiters::{Arrival, Wait, Waiters, answered, stopping};
use crate::spec::Step;
use crate::status::{ChainState, TreeStatus};
use crate::strays;
use crate::supervisor::{ChainNews, GetStatus, Goal, Supervisor};
use actix::prelude::*;
use futures::future::join_all;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

type Answer = ResponseActFuture<GroupActor, Result<Reply, Refusal>>;

/// One chain of a group.
#[derive(Debug)]
pub struct Member {
    pub name: String,
    pub steps: Vec<Step>,
    /// Places in the list of those that must have been ready before this one starts.
    pub after: Vec<usize>,
}

/// A chain as the group holds it. News that had heard fewer goals than were given is about another wish, and dropped.
#[derive(Debug)]
struct Held {
    name: String,
    addr: Addr<Supervisor>,
    goals: u64,
    reason: Option<String>,
    stop_bound: Duration,
}

#[derive(Debug)]
pub struct GroupActor {
    group: Group,
    members: Vec<Member>,
    held: Vec<Held>,
    /// The host is asked what an earlier daemon left.
    is_loading: bool,
    down_after_load: bool,
    places: HashMap<String, usize>,
    waiters: Waiters,
    descent: Option<down::Descent>,
    outside: Outside,
}

impl GroupActor {
    /// The error names the member that cannot be built, or that stands before one it waits for.
    pub fn new(members: Vec<Member>, outside: Outside) -> Result<Self, Refusal> {
        let after = members.iter().map(|member| member.after.clone()).collect();
        let group = Group::new(after).map_err(|error| {
            let name = |index: usize| members.get(index).map_or("?", |member| member.name.as_str());
            Refusal::BadRequest(format!(
                "{} comes after {}: list it behind",
                name(error.member),
                name(error.after)
            ))
        })?;
        Ok(Self {
            group,
            members,
            held: Vec::new(),
            is_loading: false,
            down_after_load: false,
            places: HashMap::new(),
            waiters: Waiters::default(),
            descent: None,
            outside,
        })
    }

    fn launch(&mut self, member: Member, parent: Recipient<ChainNews>) -> Result<(), Refusal> {
        let Member { name, steps, .. } = member;
        let stop_bound = descent::bound(&steps);
        let addr = Supervisor::launch(&name, steps, parent, self.outside.clone())
            .map_err(|error| Refusal::Failed(format!("{name}: {error}")))?;
        self.places.insert(name.clone(), self.held.len());
        self.held.push(Held { name, addr, goals: 0, reason: None, stop_bound });
        Ok(())
    }

    fn feed(&mut self, event: Event, ctx: &mut Context<Self>) {
        for effect in self.group.step(event) {
            let (index, goal) = match effect {
                Effect::Adopt(index) => (index, Goal::Adopt),
                Effect::Up(index) => (index, Goal::Up),
                Effect::Down(index) => (index, Goal::Down { hurry: None }),
                Effect::Retry(index) => (index, Goal::Retry),
            };
            let held = &mut self.held[index];
            held.goals += 1;
            held.reason = None;
            held.addr.do_send(goal);
        }
        if self.group.is_going_down() {
            self.go_on_down(ctx);
        }
        self.tell_arrival();
    }

    fn tell_arrival(&mut self) {
        if !self.waiters.wants_all_ready() {
            return;
        }
        match self.group.arrival() {
            Ok(true) => self.waiters.ready(&Ok(())),
            Ok(false) => {}
            Err(index) => {
                let Held { name, reason, .. } = &self.held[index];
                let text = format!("{name}: {}", reason.as_deref().unwrap_or_default());
                self.waiters.ready(&Err(Refusal::Failed(text)));
            }
        }
    }

    /// Builds every chain; has it take charge of what an earlier daemon left of it, and ends what belongs to none; then starts.
    /// A `Down` that comes meanwhile wins.
    fn up(&mut self, ctx: &mut Context<Self>) -> Answer {
        if self.group.is_going_down() || self.down_after_load {
            return Box::pin(fut::err(stopping()));
        }
        let mut known = BTreeSet::new();
        for member in std::mem::take(&mut self.members) {
            known.extend(member.steps.iter().map(|step| ComponentId::new(&member.name, &step.component)));
            if let Err(refusal) = self.launch(member, ctx.address().recipient()) {
                return Box::pin(fut::err(refusal));
            }
        }
        let processes = Arc::clone(&self.outside.processes);
        let accounted = Accounted { components: known, untouched: BTreeSet::new() };
        self.is_loading = true;
        let look = async move {
            for stray in processes.reap_strays(&accounted).await? {
                tracing::warn!("{stray} of an earlier daemon was ended: nothing here accounts for it");
            }
            Ok(processes.survivors().await)
        };
        Box::pin(look.into_actor(self).map(|survivors: Result<BTreeSet<ComponentId>, String>, actor, ctx| {
            actor.is_loading = false;
            strays::tell(&actor.outside, ctx);
            let survivors = survivors.map_err(Refusal::Failed).inspect_err(|refusal| {
                // Nothing was adopted: what runs runs on, and nobody is told that it is down.
                actor.waiters.down(&Err(refusal.clone()));
            })?;
            for chain in survivors.iter().map(|component| &component.chain).collect::<BTreeSet<_>>() {
                if let Some(&index) = actor.places.get(chain) {
                    actor.feed(Event::Adopt(index), ctx);
                }
            }
            if actor.down_after_load {
                actor.feed(Event::Down, ctx);
                return Err(stopping());
            }
            actor.feed(Event::Up, ctx);
            Ok(Reply::Done)
        }))
    }

    /// Answered when the service has arrived where it was sent.
    fn order(&mut self, name: &str, order: ServiceOrder, ctx: &mut Context<Self>) -> Wait {
        let Some(&index) = self.places.get(name) else {
            let text = format!("there is no service {name}; berth status shows those there are");
            return answered(Err(Refusal::NotFound(text)));
        };
        match order {
            ServiceOrder::Start => self.send(index, true, ctx),
            ServiceOrder::Stop => self.send(index, false, ctx),
            ServiceOrder::Retry => self.retry(index, ctx),
        }
    }

    fn send(&mut self, index: usize, run: bool, ctx: &mut Context<Self>) -> Wait {
        let name = self.held[index].name.clone();
        let (want, opposite, word) = if run {
            (ChainState::Ready, ChainState::Down, "started")
        } else {
            (ChainState::Down, ChainState::Ready, "stopped")
        };
        let overruled = Refusal::Conflict(format!("{name} was {word} by another command meanwhile"));
        self.waiters.overrule(&name, opposite, &overruled);
        let state = self.group.state(index);
        if run && self.group.is_told(index) && has_given_up(state) {
            let reason = self.held[index].reason.as_deref().unwrap_or_default();
            let text = format!("{name} has given up ({reason}); berth service retry {name} tries again");
            return answered(Err(Refusal::Conflict(text)));
        }
        if self.group.is_told(index) == run && state == want {
            self.feed(if run { Event::Start(index) } else { Event::Stop(index) }, ctx);
            return answered(Ok(()));
        }
        let wait = self.waiters.for_chain(&name, want);
        self.feed(if run { Event::Start(index) } else { Event::Stop(index) }, ctx);
        wait
    }

    fn retry(&mut self, index: usize, ctx: &mut Context<Self>) -> Wait {
        let name = self.held[index].name.clone();
        if !has_given_up(self.group.state(index)) {
            let text = format!("{name} has not given up: there is nothing to retry");
            return answered(Err(Refusal::Conflict(text)));
        }
        let wait = self.waiters.for_chain(&name, ChainState::Ready);
        self.feed(Event::Retry(index), ctx);
        wait
    }

    fn status(&self) -> ResponseFuture<Result<Reply, Refusal>> {
        let asked: Vec<_> = self.held.iter().map(|held| held.addr.send(GetStatus)).collect();
        let strays = strays::lines(&*self.outside.processes);
        Box::pin(async move {
            let gone = |error: MailboxError| Refusal::Failed(format!("a supervisor did not answer: {error}"));
            let services = join_all(asked).await.into_iter().collect::<Result<_, _>>().map_err(gone)?;
            Ok(Reply::Status(Box::new(TreeStatus { services, strays, ..TreeStatus::default() })))
        })
    }
}

impl Actor for GroupActor {
    type Context = Context<Self>;
}

impl Handler<ChainNews> for GroupActor {
    type Result = ();

    fn handle(&mut self, news: ChainNews, ctx: &mut Self::Context) {
        let Some(&index) = self.places.get(&news.chain) else { return };
        let held = &mut self.held[index];
        if news.goals_heard != held.goals {
            return;
        }
        held.reason.clone_from(&news.reason);
        self.waiters.hear(&news);
        self.feed(Event::Chain { index, state: news.state }, ctx);
    }
}

impl Handler<WhenDown> for GroupActor {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: WhenDown, _ctx: &mut Self::Context) -> Self::Result {
        let wait = self.waiters.for_all_down();
        self.tell_down();
        Box::pin(async move {
            // A group that is gone is down as well.
            let _ = wait.await;
        })
    }
}

impl Handler<Command> for GroupActor {
    type Result = Answer;

    fn handle(&mut self, command: Command, ctx: &mut Self::Context) -> Self::Result {
        let wait = match command {
            Command::Status => return Box::pin(self.status().into_actor(self)),
            Command::Up => return self.up(ctx),
            Command::Down => {
                let wait = self.waiters.for_all_down();
                self.waiters.stop();
                if self.is_loading {
                    // What an earlier daemon left is adopted first, and then stopped.
                    self.down_after_load = true;
                } else {
                    self.feed(Event::Down, ctx);
                }
                wait
            }
            Command::AwaitReady => {
                let wait = self.waiters.for_all_ready();
                self.tell_arrival();
                wait
            }
            Command::Service { .. } if self.group.is_going_down() => answered(Err(stopping())),
            Command::Service { name, order } => self.order(&name, order, ctx),
            Command::CreateTenant { .. }
            | Command::DeleteTenant { .. }
            | Command::StartTenant { .. }
            | Command::StopTenant { .. }
            | Command::RestartTenant { .. }
            | Command::PauseTenant { .. }
            | Command::ResumeTenant { .. }
            | Command::BeginBackup { .. }
            | Command::EndBackup { .. }
            | Command::RestoreTenant { .. }
            | Command::RestartStep { .. }
            | Command::RetryTenant { .. }
            | Command::Handover { .. }
            | Command::PlanHandover { .. }
            | Command::HandoverHistory
            | Command::PlanAdoption { .. }
            | Command::AdoptData { .. } => {
                let text = "this daemon runs plain services: it has no clusters and no kcp".to_owned();
                answered(Err(Refusal::BadRequest(text)))
            }
        };
        let arrive = async move {
            let arrival: Arrival = wait.await.unwrap_or_else(|_| Err(stopping()));
            arrival.map(|()| Reply::Done)
        };
        Box::pin(arrive.into_actor(self))
    }
}
