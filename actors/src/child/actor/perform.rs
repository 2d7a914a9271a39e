//! Each effect of the machine as a call on the host, each answer as an event.

use super::{ChildActor, What};
use crate::child::{Effect, Event, Found, Life, Timer};
use crate::host::{
    self, Blueprint, GateError, Guard, Listeners, Listens, PrepareError, Running, SpawnError, Survivor,
    WaitNote,
};
use crate::identity::Identity;
use crate::message::TreeEvent;
use crate::spec::{ProcessSpec, Seam};
use crate::status::ChildState;
use actix::prelude::*;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Lines of a log that go into a failure report: enough for a Go panic's head, small enough for a terminal.
const TAIL: usize = 20;

impl ChildActor {
    pub(super) fn perform(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        match effect {
            Effect::Adopt { attempt } => self.adopt(attempt, ctx),
            Effect::Prepare { attempt } => self.prepare(attempt, ctx),
            Effect::Abandon => cancel(&mut self.preparing, ctx),
            Effect::AwaitVacancy { attempt } => {
                let (processes, id) = (Arc::clone(&self.outside.processes), self.id.clone());
                let wait = async move { processes.strays_ended(&id).await };
                ctx.spawn(wait.into_actor(self).map(move |(), actor, ctx| {
                    actor.feed(Event::Vacant { attempt }, ctx);
                }));
            }
            Effect::Spawn { attempt } => self.spawn(attempt, ctx),
            Effect::Discover { identity } => {
                self.note.say("");
                let (listeners, listens) = (Arc::clone(&self.outside.listeners), self.blueprint.listens());
                let wait = async move { (found(&*listeners, listens, &identity).await, identity) };
                ctx.spawn(wait.into_actor(self).map(|(result, identity), actor, ctx| {
                    let address = result.as_ref().ok().copied();
                    actor.address = address.or(actor.address);
                    if let Some(running) = actor.running.take() {
                        let of_this = running.identity == identity;
                        let running = if of_this { Running { address, ..running } } else { running };
                        actor.tell(What::Running(running.clone()));
                        actor.record_address(&running, ctx);
                        actor.running = Some(running);
                    }
                    actor.feed(Event::Discovered { identity, result }, ctx);
                }));
            }
            Effect::AwaitGate { identity } => self.await_gate(identity, ctx),
            Effect::Signal { identity, signal } => {
                let (processes, id) = (Arc::clone(&self.outside.processes), self.id.clone());
                let send = async move {
                    if let Err(reason) = processes.signal(&identity, signal).await {
                        tracing::warn!(component = %id, %reason, "the stop signal was not delivered");
                    }
                };
                ctx.spawn(send.into_actor(self));
            }
            Effect::Reap { identity } => {
                let (processes, id) = (Arc::clone(&self.outside.processes), self.id.clone());
                let reap = async move { (processes.reap(&id, &identity).await, identity) };
                ctx.spawn(reap.into_actor(self).map(|(result, identity), actor, ctx| {
                    actor.feed(Event::Reaped { identity, result }, ctx);
                }));
            }
            Effect::Arm { timer, attempt, after } => {
                let handle =
                    ctx.run_later(after, move |actor, ctx| actor.feed(Event::Timer { timer, attempt }, ctx));
                if let Some(old) = self.timers[timer as usize].replace(handle) {
                    ctx.cancel_future(old);
                }
            }
            Effect::Disarm(timer) => {
                if let Some(old) = self.timers[timer as usize].take() {
                    ctx.cancel_future(old);
                }
                if timer == Timer::Gate {
                    cancel(&mut self.gating, ctx);
                }
            }
            Effect::Became(life) => self.became(life, ctx),
        }
    }

    /// Begins with a look at what holds its place.
    fn prepare(&mut self, attempt: u64, ctx: &mut Context<Self>) {
        self.note.say("");
        self.log = self.running.take().map(|running| running.log).or(self.log.take());
        self.log_tail.clear();
        let (blueprint, seam, note) = (Arc::clone(&self.blueprint), self.seam.clone(), self.note.clone());
        let upstream = self.upstream.clone();
        let stray = self.outside.processes.strays().into_iter().find(|stray| stray.component == self.id);
        let work = async move {
            if let Some(stray) = stray {
                return Err(stray);
            }
            Ok(checked_and_prepared(seam, &*blueprint, &upstream, &note).await)
        };
        let handle = ctx.spawn(work.into_actor(self).map(move |result, actor, ctx| {
            actor.preparing = None;
            let event = match result {
                Err(stray) => Event::Occupied { attempt, reason: stray.to_string() },
                Ok(result) => {
                    let result = result.map(|spec| actor.spec = Some(Box::new(spec)));
                    Event::Prepared { attempt, result }
                }
            };
            actor.feed(event, ctx);
        }));
        self.preparing = Some(handle);
    }

    /// What is left of an earlier daemon's process, compared with what a start today would bring: with the address it had
    /// before, or with none, whichever it was started with.
    fn adopt(&mut self, attempt: u64, ctx: &mut Context<Self>) {
        let (processes, id) = (Arc::clone(&self.outside.processes), self.id.clone());
        let listens = self.blueprint.listens();
        let listeners = Arc::clone(&self.outside.listeners);
        let find = async move {
            let mut found = processes.adopt(&id).await;
            if let Ok(Some(survivor)) = &mut found
                && (survivor.alive, survivor.running.address) == (true, None)
                && listens != Listens::No
            {
                survivor.running.address = place(&*listeners, listens, &survivor.running.identity).await;
                if let Some(address) = survivor.running.address {
                    processes.record_address(&id, &survivor.running.identity, address).await;
                }
            }
            found
        };
        ctx.spawn(find.into_actor(self).map(move |survivor, actor, ctx| {
            let found = match survivor {
                Ok(survivor) => survivor.and_then(|survivor| actor.take_over(survivor, ctx)),
                Err(reason) => {
                    tracing::error!(component = %actor.id, %reason, "what an earlier daemon left cannot be adopted");
                    None
                }
            };
            actor.feed(Event::Adopted { attempt, found }, ctx);
        }));
    }

    fn take_over(&mut self, survivor: Survivor, ctx: &mut Context<Self>) -> Option<Found> {
        let Survivor { running, digest, alive } = survivor;
        self.address = running.address;
        self.tell(What::Running(running.clone()));
        self.running = Some(running.clone());
        if !alive {
            tracing::warn!(component = %self.id, "it ended while no daemon was there to see how");
            return None;
        }
        self.await_exit(running.identity.clone(), ctx);
        // What would be started today may not be known now: no reason to end what runs.
        let mut known = [None, running.address]
            .into_iter()
            .filter_map(|previous_address| {
                let context = host::Context { previous_address, ..self.upstream.clone() };
                self.blueprint.spec(&context).ok()
            })
            .peekable();
        Some(Found {
            identity: running.identity,
            fits: known.peek().is_none() || known.any(|spec| spec.digest() == digest),
            is_placed: running.address.is_some() || self.blueprint.listens() == Listens::No,
        })
    }

    /// For the next daemon; this one needs no answer.
    fn record_address(&self, running: &Running, ctx: &mut Context<Self>) {
        let Some(address) = running.address else { return };
        let (processes, id, identity) =
            (Arc::clone(&self.outside.processes), self.id.clone(), running.identity.clone());
        let record = async move { processes.record_address(&id, &identity, address).await };
        ctx.spawn(record.into_actor(self));
    }

    fn spawn(&mut self, attempt: u64, ctx: &mut Context<Self>) {
        self.note.say("");
        // Taken: it may hold an open file, whose other end shall learn that the process closed its own.
        let (processes, id, spec) = (Arc::clone(&self.outside.processes), self.id.clone(), self.spec.take());
        let birth = async move {
            let spec = spec.ok_or_else(|| SpawnError::Fatal(format!("{id} was not prepared")))?;
            processes.spawn(&id, &spec).await.map(|spawned| (spawned, spec.output))
        };
        ctx.spawn(birth.into_actor(self).map(move |result, actor, ctx| {
            let result = result.map(|(spawned, log)| {
                let identity = spawned.identity;
                let running = Running {
                    identity: identity.clone(),
                    address: None,
                    log,
                    log_offset: spawned.log_offset,
                };
                actor.tell(What::Running(running.clone()));
                actor.running = Some(running);
                actor.await_exit(identity.clone(), ctx);
                identity
            });
            actor.words.say_held(&actor.id);
            actor.feed(Event::Spawned { attempt, result }, ctx);
        }));
    }

    fn await_exit(&self, identity: Identity, ctx: &mut Context<Self>) {
        let processes = Arc::clone(&self.outside.processes);
        let wait = async move { (processes.exited(&identity).await, identity) };
        ctx.spawn(wait.into_actor(self).map(|(status, identity), actor, ctx| {
            actor.feed(Event::Exited { identity, status }, ctx);
        }));
    }

    fn await_gate(&mut self, identity: Identity, ctx: &mut Context<Self>) {
        cancel(&mut self.gating, ctx);
        self.note.say("");
        let (blueprint, note, running) =
            (Arc::clone(&self.blueprint), self.note.clone(), self.running.clone());
        // A store that was restarted under a running API server may be another one: the guard looks again before the gate.
        let seam = self.machine.is_rechecked().then(|| self.seam.clone());
        let wait = async move {
            if let Some(Seam::Guarded(guard)) = seam {
                guarded(&*guard, &note).await?;
            }
            match running {
                Some(running) => blueprint.ready(&running, &note).await,
                None => Err(GateError::Hopeless("it has no process".to_owned())),
            }
        };
        let handle = ctx.spawn(wait.into_actor(self).map(move |result, actor, ctx| {
            actor.gating = None;
            actor.feed(Event::Gate { identity, result }, ctx);
        }));
        self.gating = Some(handle);
    }

    /// A guard that lost its hold while the process serves is asked again. A late word is known by its identity.
    fn watch_hold(&mut self, ctx: &mut Context<Self>) {
        cancel(&mut self.holding, ctx);
        let (Seam::Guarded(guard), Some(running)) = (self.seam.clone(), &self.running) else { return };
        let identity = running.identity.clone();
        let wait = async move { guard.lost().await };
        self.holding = Some(ctx.spawn(wait.into_actor(self).map(|(), actor, ctx| {
            actor.holding = None;
            actor.feed(Event::Unguarded { identity }, ctx);
        })));
    }

    fn became(&mut self, life: Life, ctx: &mut Context<Self>) {
        let what = match &life {
            Life::Ready { took: Some(took) } => {
                self.ready_took = Some(*took);
                format!("ready after {:.2} s", took.as_secs_f64())
            }
            Life::Ready { took: None } => "still ready".to_owned(),
            Life::Dead { failure } => {
                ctx.run_later(TAIL_AFTER, |actor, ctx| {
                    actor.words.say_held(&actor.id);
                    actor.fetch_tail(ctx);
                });
                failure.clone()
            }
            Life::Failed { reason, .. } => {
                self.fetch_tail(ctx);
                format!("failed: {reason}")
            }
            Life::Suspects { step } => format!("{step} is restarted with it"),
            Life::Starting => "starting".to_owned(),
            Life::Adopted { fits: true } => "adopted from an earlier daemon".to_owned(),
            Life::Adopted { fits: false } => {
                "adopted from an earlier daemon; started differently, so it is to be restarted".to_owned()
            }
            Life::Stopping => "stopping".to_owned(),
            Life::Down => "down".to_owned(),
            Life::Due => "to be restarted".to_owned(),
            Life::Ended => "ended, and is left at that".to_owned(),
            Life::Done { how } => format!("done: {how}"),
            Life::Stuck { reason } => format!("cannot be ended yet: {reason}"),
            Life::Unguarded => "the identity guard lost its hold on the database, and looks again".to_owned(),
            Life::Blocked { reason } => format!("cannot start yet: {reason}"),
            Life::Red => "its gate stayed closed after an earlier step's restart".to_owned(),
        };
        if matches!(life, Life::Ready { .. }) {
            self.watch_hold(ctx);
        }
        self.words.say(&self.id, &life, &what);
        // No subscriber is not an error: nobody watches the events just now.
        let _ = self.outside.events.send(TreeEvent { subject: self.id.to_string(), what });
        self.tell(What::Life(life));
    }

    /// The last words of a process, where no successor has its place by now, go into its own failure report, not into that of a start that never had one.
    fn fetch_tail(&self, ctx: &mut Context<Self>) {
        if !matches!(self.machine.state(), ChildState::Backoff | ChildState::Failed) {
            return;
        }
        let Some(Running { log, log_offset, .. }) = self.running.clone() else { return };
        let processes = Arc::clone(&self.outside.processes);
        let attempt = self.machine.attempt();
        let quotes = self.blueprint.quotes_log();
        let read = async move {
            if quotes {
                processes.log_tail(&log, log_offset, TAIL).await
            } else {
                vec![format!("its log may hold values and is not quoted: {}", log.display())]
            }
        };
        ctx.spawn(read.into_actor(self).map(move |tail, actor, _| {
            if actor.machine.attempt() == attempt {
                actor.log_tail = tail;
            }
        }));
    }
}

/// How long an adopted process is asked where it listens before it is taken for one that does not yet. Almost always it does,
/// and only its record was not written.
const PLACED: Duration = Duration::from_secs(1);

/// Where an adopted process listens. Those behind it are compared with what they would be started with today, and that
/// depends on it.
async fn place(listeners: &dyn Listeners, listens: Listens, identity: &Identity) -> Option<SocketAddr> {
    tokio::time::timeout(PLACED, found(listeners, listens, identity)).await.ok()?.ok()
}

async fn found(
    listeners: &dyn Listeners,
    listens: Listens,
    identity: &Identity,
) -> Result<SocketAddr, String> {
    match listens {
        Listens::Fixed(address) => listeners.listening_at(identity, address).await,
        Listens::OneTcp | Listens::No => listeners.listening(identity).await,
    }
}

/// A child that is replaced at once leaves no failure report, and its successor shall not wait for the disk, nor for the log.
const TAIL_AFTER: Duration = Duration::from_millis(100);

/// From one look of the guard at a database that does not answer to the next; the recheck's own deadline ends it.
const GUARD_LOOK: Duration = Duration::from_millis(500);

/// Resolves once the guard passes. A refusal ends the process: it must not serve what is not provably its own.
async fn guarded(guard: &dyn Guard, note: &WaitNote) -> Result<(), GateError> {
    loop {
        match guard.check(note).await {
            Ok(()) => return Ok(()),
            Err(PrepareError::Retry(reason)) => note.say(reason),
            Err(PrepareError::Refused(reason)) => return Err(GateError::Refused(reason)),
            Err(PrepareError::Fatal(reason)) => return Err(GateError::Fatal(reason)),
        }
        tokio::time::sleep(GUARD_LOOK).await;
    }
}

/// The guard first: a start that it refuses has changed nothing.
async fn checked_and_prepared(
    seam: Seam,
    blueprint: &dyn Blueprint,
    upstream: &host::Context,
    note: &WaitNote,
) -> Result<ProcessSpec, PrepareError> {
    if let Seam::Guarded(guard) = seam {
        note.say("the identity guard");
        guard.check(note).await?;
    }
    blueprint.prepare(upstream, note).await
}

fn cancel(slot: &mut Option<SpawnHandle>, ctx: &mut Context<ChildActor>) {
    if let Some(handle) = slot.take() {
        ctx.cancel_future(handle);
    }
}
