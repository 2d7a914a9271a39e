//! The root supervisor: owns the kcp store, both slots, the front and every tenant's group.
//!
//! It reacts: [`Root::settle`] is asked after every piece of news what may start or stop now, so that a death, an operator's
//! command and a finished start all go the same way. `handover` runs the blue/green plan, `leadership` waits on the lease.

mod handover;
mod leadership;
mod tenants;
#[cfg(test)]
mod tests;

use crate::child::actor::Outside;
use crate::front::{Front, GetFront, Retarget};
use crate::handover::{Handover, Phase, Record};
use crate::host::{Dataplane, Estate, Journal, KcpApi, Running, TenantRecord};
use crate::identity::SlotName;
use crate::message::{Command, Refusal, Reply, TreeEvent};
use crate::spec::Step;
use crate::status::{ChainState, FrontStatus, HandoverStatus, TreeStatus};
use crate::supervisor::{ChainNews, GetStatus, Goal, Supervisor};
use actix::prelude::*;
use futures::future::join_all;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

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

/// A chain the root owns, and what it last told.
#[derive(Debug)]
struct Owned {
    addr: Addr<Supervisor>,
    state: ChainState,
    reason: Option<String>,
    serving: BTreeMap<String, Running>,
    /// The goal it was last given.
    up: bool,
}

impl Owned {
    fn go_up(&mut self) {
        if !self.up {
            self.up = true;
            self.state = ChainState::Starting;
            self.addr.do_send(Goal::Up);
        }
    }

    /// Said once: a chain answers every goal with news, and news asks for the goal again.
    fn go_down(&mut self, hurry: Option<Duration>) {
        if self.up || hurry.is_some() {
            self.up = false;
            self.addr.do_send(Goal::Down { hurry });
        }
    }

    fn is_down(&self) -> bool {
        !self.up && self.state == ChainState::Down
    }
}

/// Someone waits for a chain to arrive somewhere.
#[derive(Debug)]
struct Waiter {
    chain: String,
    want: ChainState,
    reply: oneshot::Sender<Result<(), Refusal>>,
}

#[derive(Debug)]
pub struct Root {
    world: World,
    up: bool,
    store: Option<Owned>,
    slots: BTreeMap<SlotName, Owned>,
    active: SlotName,
    front: Option<Addr<Front>>,
    target: Option<(SlotName, SocketAddr)>,
    tenants: BTreeMap<String, Owned>,
    records: BTreeMap<String, TenantRecord>,
    /// Tenants whose deletion is under way.
    erasing: BTreeSet<String>,
    queue: VecDeque<String>,
    waiters: Vec<Waiter>,
    ready_waiters: Vec<oneshot::Sender<Result<(), Refusal>>>,
    down_waiters: Vec<oneshot::Sender<Result<(), Refusal>>>,
    handover: Option<handover::Running>,
    last_handover: Option<HandoverStatus>,
    /// The pid of the kcp whose leadership was looked after.
    led_by: Option<u32>,
    settled: bool,
}

impl Root {
    pub fn new(world: World) -> Self {
        Self {
            world,
            up: false,
            store: None,
            slots: BTreeMap::new(),
            active: SlotName::A,
            front: None,
            target: None,
            tenants: BTreeMap::new(),
            records: BTreeMap::new(),
            erasing: BTreeSet::new(),
            queue: VecDeque::new(),
            waiters: Vec::new(),
            ready_waiters: Vec::new(),
            down_waiters: Vec::new(),
            handover: None,
            last_handover: None,
            led_by: None,
            settled: false,
        }
    }

    fn launch(&self, name: &str, steps: Vec<Step>, ctx: &mut Context<Self>) -> Result<Owned, Refusal> {
        let parent = ctx.address().recipient();
        let addr = Supervisor::launch(name, steps, parent, self.world.outside.clone())
            .map_err(|error| Refusal::Failed(format!("{name}: {error}")))?;
        Ok(Owned { addr, state: ChainState::Down, reason: None, serving: BTreeMap::new(), up: false })
    }

    fn event(&self, subject: impl Into<String>, what: impl Into<String>) {
        let _ = self.world.outside.events.send(TreeEvent { subject: subject.into(), what: what.into() });
    }

    /// Where the kcp of `slot` serves, if it does.
    fn address(&self, slot: SlotName) -> Option<SocketAddr> {
        self.slots.get(&slot)?.serving.get(KCP)?.address
    }

    /// Builds the chains from the durable records. The journal says which slot the front belongs to.
    fn load(&mut self, ctx: &mut Context<Self>) -> ResponseActFuture<Self, Result<(), Refusal>> {
        let (estate, journal) =
            (Arc::clone(&self.world.estate), self.world.kcp.as_ref().map(|kcp| Arc::clone(&kcp.journal)));
        if let Err(refusal) = self.build_kcp(ctx) {
            return Box::pin(fut::err(refusal));
        }
        let read = async move {
            let record = match journal {
                Some(journal) => closed(&*journal).await.map_err(Refusal::Failed)?,
                None => None,
            };
            Ok((record, without_erased(&*estate).await.map_err(Refusal::Failed)?))
        };
        Box::pin(read.into_actor(self).map(|loaded: Result<_, Refusal>, root, ctx| {
            let (record, tenants) = loaded?;
            if let Some(record) = record {
                root.active = record.active();
            }
            for tenant in tenants {
                root.adopt_record(tenant, ctx)?;
            }
            root.up = true;
            root.settle(ctx);
            Ok(())
        }))
    }

    fn build_kcp(&mut self, ctx: &mut Context<Self>) -> Result<(), Refusal> {
        let Some(kcp) = self.world.kcp.clone() else { return Ok(()) };
        let estate = Arc::clone(&self.world.estate);
        self.front = Some(Front::new(Arc::clone(&kcp.dataplane)).start());
        self.store = Some(self.launch(STORE, estate.store().map_err(Refusal::Failed)?, ctx)?);
        for slot in [SlotName::A, SlotName::B] {
            let steps = estate.slot(slot).map_err(Refusal::Failed)?;
            let owned = self.launch(slot.chain(), steps, ctx)?;
            self.slots.insert(slot, owned);
        }
        Ok(())
    }

    /// What may start or stop now. Called after every piece of news; harmless when nothing changed.
    fn settle(&mut self, ctx: &mut Context<Self>) {
        if self.up {
            if let Some(store) = &mut self.store {
                store.go_up();
                if store.state == ChainState::Ready
                    && let Some(slot) = self.slots.get_mut(&self.active)
                {
                    slot.go_up();
                }
            }
            self.start_queued();
        } else {
            self.settle_down();
        }
        self.follow(ctx);
        self.look_after_leadership(ctx);
        if let Some(arrival) = self.arrival() {
            for waiter in self.ready_waiters.drain(..) {
                let _ = waiter.send(arrival.clone());
            }
        }
    }

    /// Whether everything that should run is ready, or a chain of it has given up; `None` while neither is known.
    fn arrival(&self) -> Option<Result<(), Refusal>> {
        let chains = self.store.iter().chain(self.slots.get(&self.active)).chain(self.tenants.values());
        let wanted = || chains.clone().filter(|chain| chain.up);
        let gave_up = |chain: &&Owned| matches!(chain.state, ChainState::Degraded | ChainState::Refused);
        if let Some(chain) = wanted().find(gave_up) {
            return Some(Err(Refusal::Failed(chain.reason.clone().unwrap_or_default())));
        }
        let front_serves = self.world.kcp.is_none() || self.target.is_some();
        let ready = self.up && self.queue.is_empty() && front_serves;
        (ready && wanted().all(|chain| chain.state == ChainState::Ready)).then_some(Ok(()))
    }

    /// Tenants together; then the slots; then the store under them.
    fn settle_down(&mut self) {
        for tenant in self.tenants.values_mut() {
            tenant.go_down(None);
        }
        if !self.tenants.values().all(Owned::is_down) {
            return;
        }
        for slot in self.slots.values_mut() {
            slot.go_down(None);
        }
        if !self.slots.values().all(Owned::is_down) {
            return;
        }
        if let Some(store) = &mut self.store {
            store.go_down(None);
            if !store.is_down() {
                return;
            }
        }
        for waiter in self.down_waiters.drain(..) {
            let _ = waiter.send(Ok(()));
        }
    }

    /// Keeps the front on the active slot's address, or parks new connections while it has none.
    fn follow(&mut self, ctx: &mut Context<Self>) {
        let Some(front) = self.front.clone() else { return };
        let wanted = self.address(self.active).map(|address| (self.active, address));
        if wanted != self.target {
            self.target = wanted;
            ctx.spawn(async move { front.send(Retarget(wanted)).await }.into_actor(self).map(
                |result, _, _| {
                    if let Err(error) = result {
                        tracing::error!(%error, "the front did not take its target");
                    }
                },
            ));
        }
    }

    fn satisfy(&mut self, news: &ChainNews) {
        let failed = matches!(news.state, ChainState::Degraded | ChainState::Refused);
        let (done, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiters).into_iter().partition(|waiter| {
                waiter.chain == news.chain
                    && (waiter.want == news.state || (failed && waiter.want == ChainState::Ready))
            });
        self.waiters = rest;
        for waiter in done {
            let answer = if waiter.want == news.state {
                Ok(())
            } else {
                let reason = news.reason.clone().unwrap_or_default();
                Err(Refusal::Failed(format!("{}: {reason}", news.chain)))
            };
            let _ = waiter.reply.send(answer);
        }
    }

    fn wait_for(&mut self, chain: &str, want: ChainState) -> oneshot::Receiver<Result<(), Refusal>> {
        let (reply, answer) = oneshot::channel();
        self.waiters.push(Waiter { chain: chain.to_owned(), want, reply });
        answer
    }

    fn status(&self) -> ResponseFuture<Result<Reply, Refusal>> {
        let chain = |owned: &Owned| owned.addr.send(GetStatus);
        let store = self.store.as_ref().map(chain);
        let slots: Vec<_> = self.slots.values().map(chain).collect();
        let tenants: Vec<_> = self.tenants.values().map(chain).collect();
        let front = self.front.as_ref().map(|front| front.send(GetFront));
        let active_slot = self.world.kcp.is_some().then_some(self.active);
        let handover =
            self.handover.as_ref().map(handover::Running::status).or_else(|| self.last_handover.clone());
        Box::pin(async move {
            let gone = |error: MailboxError| Refusal::Failed(format!("a supervisor did not answer: {error}"));
            let store = match store {
                Some(store) => Some(store.await.map_err(gone)?),
                None => None,
            };
            let slots = join_all(slots).await.into_iter().collect::<Result<_, _>>().map_err(gone)?;
            let tenants = join_all(tenants).await.into_iter().collect::<Result<_, _>>().map_err(gone)?;
            let front = match front {
                Some(front) => front.await.map_err(gone)?,
                None => FrontStatus::default(),
            };
            Ok(Reply::Status(Box::new(TreeStatus { store, slots, active_slot, front, tenants, handover })))
        })
    }
}

/// The journal's record. A handover that a dead daemon left half-done is closed here: every process of that daemon is gone,
/// so starting the slot the record names is all that is left to do.
async fn closed(journal: &dyn Journal) -> Result<Option<Record>, String> {
    let Some(mut record) = journal.read().await? else { return Ok(None) };
    let end = if record.active() == record.to { Phase::Done } else { Phase::RolledBack };
    if record.phase != end {
        record.phase = end;
        journal.write(&record).await?;
    }
    Ok(Some(record))
}

/// The tenants there are. A deletion that a dead daemon left half-done is finished first: nothing of the tenant runs now.
/// One that fails again keeps its record, and stops nobody else.
async fn without_erased(estate: &dyn Estate) -> Result<Vec<TenantRecord>, String> {
    let mut kept = Vec::new();
    for record in estate.tenants().await? {
        if record.erase {
            match estate.erase_tenant(&record.name).await {
                Ok(()) => continue,
                Err(reason) => tracing::warn!(%reason, "{} is not deleted yet", record.name),
            }
        }
        kept.push(record);
    }
    Ok(kept)
}

impl Actor for Root {
    type Context = Context<Self>;
}

impl Handler<ChainNews> for Root {
    type Result = ();

    fn handle(&mut self, news: ChainNews, ctx: &mut Self::Context) {
        let owned = if news.chain == STORE {
            self.store.as_mut()
        } else if let Some(slot) =
            [SlotName::A, SlotName::B].into_iter().find(|slot| slot.chain() == news.chain)
        {
            self.slots.get_mut(&slot)
        } else {
            self.tenants.get_mut(&news.chain)
        };
        let Some(owned) = owned else { return };
        owned.state = news.state;
        owned.reason.clone_from(&news.reason);
        owned.serving.clone_from(&news.serving);
        self.satisfy(&news);
        self.handover_news(&news, ctx);
        self.settle(ctx);
    }
}

/// Answered once everything is down after a [`Command::Down`], whoever gave it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WhenDown;

impl Handler<WhenDown> for Root {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: WhenDown, _ctx: &mut Self::Context) -> Self::Result {
        let (reply, answer) = oneshot::channel();
        self.down_waiters.push(reply);
        Box::pin(async move {
            // A root that is gone is down as well.
            let _ = answer.await;
        })
    }
}

impl Handler<Command> for Root {
    type Result = ResponseActFuture<Self, Result<Reply, Refusal>>;

    fn handle(&mut self, command: Command, ctx: &mut Self::Context) -> Self::Result {
        let done = |answer: oneshot::Receiver<Result<(), Refusal>>| async move {
            answer
                .await
                .unwrap_or_else(|_| Err(Refusal::Conflict("another command took its place".to_owned())))
                .map(|()| Reply::Done)
        };
        match command {
            Command::Status => Box::pin(self.status().into_actor(self)),
            Command::Up => {
                if self.up {
                    return Box::pin(fut::ok(Reply::Done));
                }
                Box::pin(self.load(ctx).map(|result, _, _| result.map(|()| Reply::Done)))
            }
            Command::Down => {
                let (reply, answer) = oneshot::channel();
                self.up = false;
                self.queue.clear();
                self.waiters.clear();
                self.ready_waiters.clear();
                self.down_waiters.push(reply);
                self.abandon_handover();
                self.settle(ctx);
                Box::pin(done(answer).into_actor(self))
            }
            Command::AwaitReady => {
                let (reply, answer) = oneshot::channel();
                self.ready_waiters.push(reply);
                self.settle(ctx);
                Box::pin(done(answer).into_actor(self))
            }
            Command::Handover => self.begin_handover(ctx),
            _ if !self.up => {
                Box::pin(fut::err(Refusal::Conflict("the daemon is not up, or is stopping".to_owned())))
            }
            Command::CreateTenant { name } => self.create(name),
            Command::DeleteTenant { name } => self.delete(&name),
            Command::StartTenant { name } => self.set_run(&name, true),
            Command::StopTenant { name } => self.set_run(&name, false),
            Command::RestartTenant { name } => self.restart(&name),
            Command::RetryTenant { name } => self.retry(&name),
        }
    }
}
