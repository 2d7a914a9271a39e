//! The actor that owns one chain: a slot (kine, kcp), the kcp store (postgres), or a tenant's group.
//!
//! It owns one [`ChildActor`] per step, feeds what they tell into the pure [`Chain`], and turns the chain's effects into
//! orders. Its parent hears of every change as [`ChainNews`].

#[cfg(test)]
mod tests;

use crate::chain::{Chain, ChainError, Effect, Event, Hangs};
use crate::child::Life;
use crate::child::actor::{self, ChildActor, News, Order, Outside, What};
use crate::host::{Context as Upstream, Running};
use crate::identity::ComponentId;
use crate::message::TreeEvent;
use crate::spec::Step;
use crate::status::{ChainState, ChainStatus};
use actix::prelude::*;
use futures::future::join_all;
use std::collections::BTreeMap;
use std::time::Duration;

/// What the root wants of a chain.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub enum Goal {
    /// Take charge of what an earlier daemon left of this chain. The first goal, where there is anything.
    Adopt,
    Up,
    /// `hurry` replaces every step's own stop deadline: a slot nobody is connected to any more has nothing to finish.
    Down {
        hurry: Option<Duration>,
    },
    Retry,
    /// This step stops and starts again; without one of that name nothing happens.
    Restart {
        component: String,
    },
    /// The chain is down and forgotten: the actor and its children end.
    Dismiss,
}

/// Asks for the chain as an operator sees it.
#[derive(Debug, Message)]
#[rtype(result = "ChainStatus")]
pub struct GetStatus;

/// A chain changed.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct ChainNews {
    pub chain: String,
    pub state: ChainState,
    pub reason: Option<String>,
    /// Goals the chain had heard when it told this: fewer than were sent make it old news.
    pub goals_heard: u64,
    pub hangs: Hangs,
    /// Steps that serve now: ready, or riding through an earlier step's restart.
    pub serving: BTreeMap<String, Running>,
}

#[derive(Debug)]
struct View {
    addr: Addr<ChildActor>,
    name: String,
    running: Option<Running>,
    serving: bool,
}

#[derive(Debug)]
pub struct Supervisor {
    name: String,
    chain: Chain,
    /// Until the children are made of them.
    steps: Vec<Step>,
    children: Vec<View>,
    parent: Recipient<ChainNews>,
    outside: Outside,
    hurry: Option<Duration>,
    goals_heard: u64,
}

impl Supervisor {
    /// Checks the steps and starts the actor; nothing runs until [`Goal::Up`].
    pub fn launch(
        name: impl Into<String>,
        steps: Vec<Step>,
        parent: Recipient<ChainNews>,
        outside: Outside,
    ) -> Result<Addr<Self>, ChainError> {
        let chain = Chain::new(&steps)?;
        let name = name.into();
        Ok(Self { name, chain, steps, children: Vec::new(), parent, outside, hurry: None, goals_heard: 0 }
            .start())
    }

    fn feed(&mut self, event: Event) {
        for effect in self.chain.step(event) {
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Adopt(index) => self.order(index, Order::Adopt(self.upstream_of(index))),
            Effect::Start(index) => {
                let (upstream, same_address) = (self.upstream_of(index), self.chain.has_dependants(index));
                self.order(index, Order::Start { upstream, same_address });
            }
            Effect::Stop(index) => self.order(index, Order::Stop { deadline: self.hurry }),
            Effect::Recheck(index, within) => self.order(index, Order::Recheck(within)),
            Effect::Excuse(index) => self.order(index, Order::Excuse),
            Effect::Retry(index) => self.order(index, Order::Retry),
            Effect::Became { state, reason } => {
                let what = match &reason {
                    Some(reason) => format!("{state:?}: {reason}").to_lowercase(),
                    None => format!("{state:?}").to_lowercase(),
                };
                let _ = self.outside.events.send(TreeEvent { subject: self.name.clone(), what });
            }
        }
    }

    fn upstream_of(&self, index: usize) -> Upstream {
        let earlier = self.children[..index].iter();
        let upstream =
            earlier.filter_map(|child| Some((child.name.clone(), child.running.clone()?))).collect();
        Upstream { upstream, previous_address: None }
    }

    fn order(&self, index: usize, order: Order) {
        self.children[index].addr.do_send(order);
    }

    fn tell(&self) {
        let (state, reason) = self.chain.state();
        let serving = self
            .children
            .iter()
            .filter(|child| child.serving)
            .filter_map(|child| Some((child.name.clone(), child.running.clone()?)))
            .collect();
        self.parent.do_send(ChainNews {
            chain: self.name.clone(),
            state,
            reason,
            goals_heard: self.goals_heard,
            hangs: self.chain.hangs().clone(),
            serving,
        });
    }
}

impl Actor for Supervisor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.children = std::mem::take(&mut self.steps)
            .into_iter()
            .enumerate()
            .map(|(index, step)| {
                let name = step.component.clone();
                let id = ComponentId::new(&self.name, &name);
                let parent = ctx.address().recipient();
                let child = ChildActor::new(id, index, step, parent, self.outside.clone());
                View { addr: child.start(), name, running: None, serving: false }
            })
            .collect();
    }
}

impl Handler<Goal> for Supervisor {
    type Result = ();

    fn handle(&mut self, goal: Goal, ctx: &mut Self::Context) {
        let event = match goal {
            Goal::Restart { component } => {
                self.goals_heard += 1;
                if let Some(index) = self.children.iter().position(|child| child.name == component) {
                    self.feed(Event::Restart(index));
                }
                self.tell();
                return;
            }
            Goal::Adopt => Event::Adopt,
            Goal::Up => {
                self.hurry = None;
                Event::Up
            }
            Goal::Down { hurry } => {
                self.hurry = hurry;
                Event::Down
            }
            Goal::Retry => Event::Retry,
            Goal::Dismiss => {
                ctx.stop();
                return;
            }
        };
        self.goals_heard += 1;
        self.feed(event);
        self.tell();
    }
}

impl Handler<News> for Supervisor {
    type Result = ();

    fn handle(&mut self, news: News, _ctx: &mut Self::Context) {
        let Some(child) = self.children.get_mut(news.index) else { return };
        match news.what {
            What::Running(running) => child.running = Some(running),
            What::Life(life) => {
                match &life {
                    // It has served all along: whoever is connected to it knows nothing of this daemon.
                    Life::Ready { .. } | Life::Adopted { fits: true } => child.serving = true,
                    Life::Starting | Life::Red | Life::Unguarded | Life::Suspects { .. } => {}
                    _ => child.serving = false,
                }
                self.feed(Event::Child { index: news.index, life });
                self.tell();
            }
        }
    }
}

impl Handler<GetStatus> for Supervisor {
    type Result = ResponseActFuture<Self, ChainStatus>;

    fn handle(&mut self, _: GetStatus, _ctx: &mut Self::Context) -> Self::Result {
        let asked = join_all(self.children.iter().map(|child| child.addr.send(actor::GetStatus)));
        let before = self.chain.state();
        Box::pin(asked.into_actor(self).map(|children, supervisor, _| {
            // After the answers: what the children told before them has been heard. A chain that has become ready since may
            // have a child that answered too early for it.
            let after = supervisor.chain.state();
            let (state, reason) = if after.0 == ChainState::Ready { before } else { after };
            // One that does not answer is ending with its chain.
            let children = children.into_iter().flatten().collect();
            ChainStatus { name: supervisor.name.clone(), state, reason, paused: None, children }
        }))
    }
}
