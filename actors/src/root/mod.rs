//! The root supervisor: owns the kcp store, both slots, the front and every tenant's group.
//!
//! It reacts: [`Root::settle`] is asked after every piece of news what may start or stop now, so that a death, an operator's
//! command and a finished start all go the same way. `load` builds the chains, `tenants` changes them at an operator's wish,
//! `pauses` holds them down, `backups` and `data_adoption` keep others away from their data meanwhile,
//! `down` stops them, `handover` runs the blue/green plan and `plan` thinks it through, `leadership` waits on the lease.

mod backups;
mod canary;
mod data_adoption;
mod down;
mod handover;
mod leadership;
mod load;
mod owned;
mod pauses;
mod plan;
mod restores;
mod status;
mod store;
mod tenants;
#[cfg(test)]
mod tests;
pub(crate) mod waiters;

use crate::canary::Cadence;
use crate::child::actor::Outside;
use crate::front::{Front, Retarget};
use crate::host::{Dataplane, Estate, Journal, KcpApi, TenantRecord};
use crate::identity::SlotName;
use crate::message::{Command, Refusal, Reply, TreeEvent};
use crate::status::{ChainState, HandoverStatus, Handovers};
use crate::supervisor::ChainNews;
use actix::prelude::*;
use owned::Owned;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use waiters::{Arrival, Wait, Waiters, stopping};

/// The chain of the kcp store's postgres.
pub const STORE: &str = "kcp-store";
/// The step of a slot that the front serves.
const KCP: &str = "kcp";

/// Everything the root needs from outside. `kcp` is absent where only tenants run.
#[derive(Clone)]
pub struct World {
    pub outside: Outside,
    pub estate: Arc<dyn Estate>,
    pub kcp: Option<Kcp>,
    /// Tenants that may be starting at the same time: more would thrash the host, and none would be ready earlier.
    pub starts_at_once: usize,
}

/// The kcp side of the outside world.
#[derive(Clone)]
pub struct Kcp {
    pub api: Arc<dyn KcpApi>,
    pub journal: Arc<dyn Journal>,
    pub dataplane: Arc<dyn Dataplane>,
    /// How long a drain may take before the connections that are left are cut.
    pub drain_limit: Duration,
    /// `None`: nobody looks whether the serving slot's watches are alive.
    pub canary: Option<Cadence>,
}

impl std::fmt::Debug for Kcp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kcp").field("drain_limit", &self.drain_limit).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").field("kcp", &self.kcp.is_some()).finish_non_exhaustive()
    }
}

/// Where the daemon as a whole is going. It comes up once and goes down once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Course {
    Idle,
    Loading,
    Up,
    Down,
}

#[derive(Debug)]
pub struct Root {
    world: World,
    course: Course,
    /// Told to go down before it was up.
    down_after_load: bool,
    store: Option<Owned>,
    slots: BTreeMap<SlotName, Owned>,
    active: SlotName,
    front: Option<Addr<Front>>,
    target: Option<(SlotName, SocketAddr)>,
    tenants: BTreeMap<String, Owned>,
    records: BTreeMap<String, TenantRecord>,
    /// Tenants whose record cannot be read, and why. An operator repairs it and restarts the daemon.
    unreadable: BTreeMap<String, String>,
    /// Tenants that are on their way out: no other command may touch them.
    deleting: BTreeSet<String>,
    /// Tenants whose database is being copied: nothing may stop it.
    backing_up: BTreeSet<String>,
    /// Tenants whose data are being adopted.
    adopting: BTreeSet<String>,
    /// Desired state is written one record after the other: the last command's is the one that stays.
    pen: Arc<Mutex<()>>,
    queue: VecDeque<String>,
    waiters: Waiters,
    descent: Option<down::Descent>,
    handover: Option<handover::Running>,
    last_handover: Option<HandoverStatus>,
    handovers: Handovers,
    /// The pid of the kcp whose leadership was looked after, and the look that is under way.
    led_by: Option<u32>,
    leads: Option<leadership::Leads>,
    look: Option<SpawnHandle>,
    aviary: canary::Aviary,
}

impl Root {
    pub fn new(world: World) -> Self {
        Self {
            world,
            course: Course::Idle,
            down_after_load: false,
            store: None,
            slots: BTreeMap::new(),
            active: SlotName::A,
            front: None,
            target: None,
            tenants: BTreeMap::new(),
            records: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            deleting: BTreeSet::new(),
            backing_up: BTreeSet::new(),
            adopting: BTreeSet::new(),
            pen: Arc::default(),
            queue: VecDeque::new(),
            waiters: Waiters::default(),
            descent: None,
            handover: None,
            last_handover: None,
            handovers: Handovers::default(),
            led_by: None,
            leads: None,
            look: None,
            aviary: canary::Aviary::default(),
        }
    }

    fn event(&self, subject: impl Into<String>, what: impl Into<String>) {
        let _ = self.world.outside.events.send(TreeEvent { subject: subject.into(), what: what.into() });
    }

    fn owned_mut(&mut self, chain: &str) -> Option<&mut Owned> {
        let slot = [SlotName::A, SlotName::B].into_iter().find(|slot| slot.chain() == chain);
        match slot {
            Some(slot) => self.slots.get_mut(&slot),
            None if chain == STORE => self.store.as_mut(),
            None => self.tenants.get_mut(chain),
        }
    }

    /// Where the kcp of `slot` serves, if it does.
    fn address(&self, slot: SlotName) -> Option<SocketAddr> {
        self.slots.get(&slot)?.serving(KCP)?.address
    }

    fn go_down(&mut self, ctx: &mut Context<Self>) {
        self.course = Course::Down;
        self.queue.clear();
        self.abandon_handover(ctx);
        self.forget_leadership(ctx);
        self.begin_descent(ctx);
        self.settle(ctx);
    }

    fn is_up(&self) -> bool {
        self.course == Course::Up
    }

    /// What may start or stop now. Called after every piece of news; harmless when nothing changed.
    fn settle(&mut self, ctx: &mut Context<Self>) {
        match self.course {
            Course::Idle | Course::Loading => {}
            Course::Up => self.settle_up(),
            Course::Down => self.settle_down(),
        }
        self.follow(ctx);
        self.look_after_leadership(ctx);
        self.keep_canary(ctx);
        if let Some(arrival) = self.arrival() {
            self.waiters.ready(&arrival);
        }
    }

    /// The store, then the active slot on it; tenants beside them.
    fn settle_up(&mut self) {
        if let Some(store) = &mut self.store {
            store.go_up();
            if store.state() == ChainState::Ready
                && let Some(slot) = self.slots.get_mut(&self.active)
            {
                slot.go_up();
            }
        }
        self.start_queued();
    }

    /// Whether everything that should run is ready, or a chain of it has given up; `None` while neither is known.
    fn arrival(&self) -> Option<Arrival> {
        if !self.is_up() {
            return None;
        }
        if let Some((name, reason)) = self.unreadable.first_key_value() {
            return Some(Err(Refusal::Failed(format!("{name}: {reason}"))));
        }
        let store = self.store.iter().map(|store| (STORE, store));
        let slot = self.slots.get(&self.active).map(|slot| (self.active.chain(), slot));
        let tenants = self.tenants.iter().map(|(name, tenant)| (name.as_str(), tenant));
        let mut chains = store.chain(slot).chain(tenants).filter(|(_, chain)| chain.wants_up());
        if let Some((name, chain)) = chains.clone().find(|(_, chain)| chain.gave_up()) {
            return Some(Err(Refusal::Failed(format!("{name}: {}", chain.reason()))));
        }
        let front_serves = self.world.kcp.is_none() || self.target.is_some();
        let ready = self.queue.is_empty() && front_serves;
        (ready && chains.all(|(_, chain)| chain.state() == ChainState::Ready)).then_some(Ok(()))
    }

    /// Keeps the front on the active slot's address, or parks new connections while it has none.
    fn follow(&mut self, ctx: &mut Context<Self>) {
        let Some(front) = self.front.clone() else { return };
        let wanted = self.address(self.active).map(|address| (self.active, address));
        if wanted != self.target {
            self.target = wanted;
            let retarget = async move { front.send(Retarget(wanted)).await };
            ctx.spawn(retarget.into_actor(self).map(move |result, root, _| root.retargeted(wanted, result)));
        }
    }

    fn retargeted(&self, target: Option<(SlotName, SocketAddr)>, result: Result<(), MailboxError>) {
        match (result, target) {
            (Ok(()), Some((slot, address))) => {
                self.event("front", format!("serves slot {slot} at {address}"));
            }
            (Ok(()), None) => self.event("front", "parks new connections"),
            (Err(error), _) => tracing::error!(%error, "the front did not take its target"),
        }
    }
}

impl Actor for Root {
    type Context = Context<Self>;
}

impl Handler<ChainNews> for Root {
    type Result = ();

    fn handle(&mut self, news: ChainNews, ctx: &mut Self::Context) {
        let Some(owned) = self.owned_mut(&news.chain) else { return };
        let before = owned.state();
        if !owned.hear(&news) {
            return;
        }
        self.end_kines_of_a_dead_store(&news, before, ctx);
        self.waiters.hear(&news);
        self.handover_news(&news, ctx);
        self.settle(ctx);
    }
}

/// Whether the tree is up, and nobody told it to go down.
#[derive(Debug, Message)]
#[rtype(result = "bool")]
pub struct IsUp;

impl Handler<IsUp> for Root {
    type Result = bool;

    fn handle(&mut self, _: IsUp, _ctx: &mut Self::Context) -> bool {
        self.is_up()
    }
}

/// Answered once everything is down after a [`Command::Down`], whoever gave it; or once its time is over.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WhenDown;

impl Handler<WhenDown> for Root {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: WhenDown, ctx: &mut Self::Context) -> Self::Result {
        let wait = self.waiters.for_all_down();
        self.settle(ctx);
        Box::pin(async move {
            // A root that is gone is down as well.
            let _ = wait.await;
        })
    }
}

impl Handler<Command> for Root {
    type Result = ResponseActFuture<Self, Result<Reply, Refusal>>;

    fn handle(&mut self, command: Command, ctx: &mut Self::Context) -> Self::Result {
        let on_arrival = |wait: Wait| async move { wait.await.unwrap_or_else(|_| Err(stopping())) };
        let done = |arrival: Arrival| arrival.map(|()| Reply::Done);
        match command {
            Command::Status => Box::pin(self.status().into_actor(self)),
            Command::Up => match self.course {
                Course::Idle => Box::pin(self.load(ctx).map(move |result, _, _| done(result))),
                Course::Up => Box::pin(fut::ok(Reply::Done)),
                Course::Loading => {
                    Box::pin(fut::err(Refusal::Conflict("the daemon is starting already".to_owned())))
                }
                Course::Down => Box::pin(fut::err(stopping())),
            },
            Command::Down => {
                let wait = self.waiters.for_all_down();
                self.waiters.stop();
                if self.course == Course::Loading {
                    // What an earlier daemon left is adopted first: else it would run on while everything counts as down.
                    self.down_after_load = true;
                } else {
                    self.go_down(ctx);
                }
                Box::pin(async move { done(on_arrival(wait).await) }.into_actor(self))
            }
            _ if self.course == Course::Down || self.down_after_load => Box::pin(fut::err(stopping())),
            Command::AwaitReady => {
                let wait = self.waiters.for_all_ready();
                self.settle(ctx);
                Box::pin(async move { done(on_arrival(wait).await) }.into_actor(self))
            }
            // The control socket is there before the records are read: a script that waited for it has waited enough.
            command if self.course == Course::Loading => {
                let (loaded, root) = (self.waiters.for_load(), ctx.address());
                let again = async move {
                    on_arrival(loaded).await?;
                    root.send(command).await.unwrap_or_else(|_| Err(stopping()))
                };
                Box::pin(again.into_actor(self))
            }
            _ if !self.is_up() => {
                Box::pin(fut::err(Refusal::Conflict("the daemon is not up yet".to_owned())))
            }
            Command::Handover { wish } => self.begin_handover(wish, ctx),
            Command::PlanHandover { wish } => self.plan_handover(wish),
            Command::HandoverHistory => self.handover_history(),
            Command::CreateTenant { name } => self.create(name),
            Command::DeleteTenant { name } => self.delete(&name),
            Command::StartTenant { name } => self.set_run(&name, true),
            Command::StopTenant { name } => self.set_run(&name, false),
            Command::PauseTenant { name, at } => self.pause(&name, at),
            Command::ResumeTenant { name } => self.resume(&name),
            Command::BeginBackup { name } => self.begin_backup(&name),
            Command::EndBackup { name } => self.end_backup(&name),
            Command::RestoreTenant { name, staging, distribution } => {
                self.restore(name, staging, distribution)
            }
            Command::RestartTenant { name } => self.restart(&name, ctx),
            Command::RestartStep { name, component } => self.restart_step(&name, &component),
            Command::RetryTenant { name } => self.retry(&name),
            Command::PlanAdoption { name } => self.plan_adoption(name),
            Command::AdoptData { name, consent } => self.adopt_data(name, consent),
            Command::Service { name, .. } => {
                let text = format!("there is no service {name}: this daemon runs clusters");
                Box::pin(fut::err(Refusal::NotFound(text)))
            }
        }
    }
}
