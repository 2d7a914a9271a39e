//! The actor around [`Child`]: performs its effects through the host traits and feeds the answers back.
//!
//! It decides nothing. Everything it awaits runs as a future of its own context, so the mailbox is never blocked, and an
//! answer that comes too late meets a machine that knows it by its attempt or identity.

mod perform;
mod words;

use super::{Child, Event, Life, Timer};
use crate::host::{Blueprint, Context as Upstream, Listeners, Listens, Processes, Running, WaitNote};
use crate::identity::ComponentId;
use crate::message::TreeEvent;
use crate::spec::{ProcessSpec, Seam, Step};
use crate::status::{ChildState, ChildStatus};
use actix::prelude::*;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::time::Instant;
use words::Words;

/// What a chain tells a child.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum Order {
    Adopt(Upstream),
    /// `same_address`: somebody knows where it listened, and will not look again.
    Start {
        upstream: Upstream,
        same_address: bool,
    },
    Stop {
        deadline: Option<Duration>,
    },
    Recheck(Duration),
    Excuse,
    Retry,
}

/// What a child tells its chain.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct News {
    pub index: usize,
    pub what: What,
}

#[derive(Debug)]
pub enum What {
    Life(Life),
    /// Spawned, or its port became known.
    Running(Running),
}

/// Asks for the child as an operator sees it. Its news so far is with its chain before the answer is.
#[derive(Debug, Message)]
#[rtype(result = "ChildStatus")]
pub struct GetStatus;

/// What every child of the daemon shares.
#[derive(Clone)]
pub struct Outside {
    pub processes: Arc<dyn Processes>,
    pub listeners: Arc<dyn Listeners>,
    pub events: broadcast::Sender<TreeEvent>,
}

impl std::fmt::Debug for Outside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Outside")
    }
}

pub struct ChildActor {
    id: ComponentId,
    index: usize,
    blueprint: Arc<dyn Blueprint>,
    seam: Seam,
    stand_in: Option<String>,
    machine: Child,
    /// The machine's state, and since when.
    state: (ChildState, Instant),
    parent: Recipient<News>,
    outside: Outside,
    upstream: Upstream,
    /// From the preparation to the birth.
    spec: Option<Box<ProcessSpec>>,
    /// The process of the latest start, if that start had one.
    running: Option<Running>,
    /// Where any process of it listened last: a start that never came so far must not lose the port.
    address: Option<SocketAddr>,
    /// That of the last start that had a process, while there is none.
    log: Option<PathBuf>,
    /// By [`Timer`].
    timers: [Option<SpawnHandle>; Timer::KINDS],
    preparing: Option<SpawnHandle>,
    gating: Option<SpawnHandle>,
    /// Waits for the end of the identity guard's hold.
    holding: Option<SpawnHandle>,
    note: WaitNote,
    ready_took: Option<Duration>,
    log_tail: Vec<String>,
    words: Words,
}

impl std::fmt::Debug for ChildActor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChildActor")
            .field("id", &self.id)
            .field("machine", &self.machine)
            .field("running", &self.running)
            .finish_non_exhaustive()
    }
}

impl ChildActor {
    pub fn new(id: ComponentId, index: usize, step: Step, parent: Recipient<News>, outside: Outside) -> Self {
        let Step { blueprint, seam, restart, stop, start_deadline, stand_in, .. } = step;
        let discovers = blueprint.listens() != Listens::No;
        let machine = Child::new(restart, stop, start_deadline, discovers, rand::random());
        let state = (machine.state(), Instant::now());
        Self {
            id,
            index,
            blueprint,
            seam,
            stand_in,
            machine,
            state,
            parent,
            outside,
            upstream: Upstream::default(),
            spec: None,
            running: None,
            address: None,
            log: None,
            timers: [None; Timer::KINDS],
            preparing: None,
            gating: None,
            holding: None,
            note: WaitNote::default(),
            ready_took: None,
            log_tail: Vec::new(),
            words: Words::default(),
        }
    }

    fn feed(&mut self, event: Event, ctx: &mut Context<Self>) {
        let effects = self.machine.step(event, Instant::now().into_std());
        for effect in effects {
            self.perform(effect, ctx);
        }
        if self.machine.state() != self.state.0 {
            self.state = (self.machine.state(), Instant::now());
        }
    }

    fn tell(&self, what: What) {
        self.parent.do_send(News { index: self.index, what });
    }

    fn status(&self) -> ChildStatus {
        let (state, since) = self.state;
        let running = self.running.as_ref().filter(|_| self.machine.identity().is_some());
        let failed = matches!(state, ChildState::Failed | ChildState::Backoff);
        let note = Some(self.note.get()).filter(|note| state == ChildState::Starting && !note.is_empty());
        ChildStatus {
            name: self.id.component.clone(),
            state,
            pid: running.map(|running| running.identity.pid),
            address: running.and_then(|running| running.address),
            since_ms: millis(since.elapsed()),
            ready_took_ms: self.ready_took.map(millis),
            restarts: self.machine.restarts(),
            waits_for: note.or_else(|| self.machine.waits_for()),
            last_failure: self.machine.last_failure().map(str::to_owned),
            log_tail: if failed { self.log_tail.clone() } else { Vec::new() },
            log: self
                .running
                .as_ref()
                .map(|running| &running.log)
                .or(self.log.as_ref())
                .map(|path| shown(path)),
            stand_in: self.stand_in.clone(),
        }
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Actor for ChildActor {
    type Context = Context<Self>;
}

impl Handler<GetStatus> for ChildActor {
    type Result = MessageResult<GetStatus>;

    fn handle(&mut self, _: GetStatus, _ctx: &mut Self::Context) -> Self::Result {
        MessageResult(self.status())
    }
}

impl Handler<Order> for ChildActor {
    type Result = ();

    fn handle(&mut self, order: Order, ctx: &mut Self::Context) {
        let event = match order {
            Order::Adopt(upstream) => {
                self.upstream = upstream;
                Event::Adopt
            }
            Order::Start { mut upstream, same_address } => {
                upstream.previous_address = self.address.filter(|_| same_address);
                self.upstream = upstream;
                Event::Start
            }
            Order::Stop { deadline } => Event::Stop { deadline },
            Order::Recheck(within) => Event::Recheck { within },
            Order::Excuse => Event::Excuse,
            Order::Retry => Event::Retry,
        };
        self.feed(event, ctx);
    }
}
