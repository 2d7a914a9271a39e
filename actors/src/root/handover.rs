//! Carries the blue/green plan out: each effect of [`crate::handover`] becomes a call, each answer an event.

use super::waiters::stopping;
use super::{Kcp, Owned, Root, leadership};
use crate::front::{Drain, Retarget};
use crate::handover::{Effect, Event, Handover};
use crate::host::DrainReport;
use crate::identity::SlotName;
use crate::message::{Refusal, Reply};
use crate::status::{ChainState, HandoverOutcome, HandoverStatus, PhaseStatus};
use crate::supervisor::ChainNews;
use actix::prelude::*;
use std::future::Future;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A kcp is ready after 6 to 26 s, 50 s on a busy machine; a hung start is ended by its own gate long before this.
const NEW_SLOT_READY: Duration = Duration::from_secs(120);
/// A kcp without connections exits within 1.4 s; two of them hung instead, and nobody is left to be hurt by SIGKILL.
pub(super) const OLD_SLOT_STOP: Duration = Duration::from_secs(5);

/// The handover under way.
#[derive(Debug)]
pub(super) struct Running {
    machine: Handover,
    from: SlotName,
    to: SlotName,
    phases: Vec<PhaseStatus>,
    phase_since: Instant,
    drain: Option<DrainReport>,
    reply: Option<oneshot::Sender<Result<Reply, Refusal>>>,
    /// Armed while the new slot's chain is awaited.
    awaits_new: Option<SpawnHandle>,
    awaits_down: Option<SlotName>,
    look: Option<Look>,
}

/// A wait on the lease through one slot's kcp. It asks at one address: with that kcp it is over.
#[derive(Debug)]
struct Look {
    through: SlotName,
    task: SpawnHandle,
    lost: fn(String) -> Event,
}

impl Running {
    pub(super) fn status(&self) -> HandoverStatus {
        HandoverStatus {
            from: self.from,
            to: self.to,
            outcome: HandoverOutcome::Running,
            phases: self.phases.clone(),
            drain: self.drain,
        }
    }
}

impl Root {
    pub(super) fn begin_handover(
        &mut self,
        ctx: &mut Context<Self>,
    ) -> ResponseActFuture<Self, Result<Reply, Refusal>> {
        if let Err(refusal) = self.may_hand_over() {
            return Box::pin(fut::err(refusal));
        }
        let (reply, answer) = oneshot::channel();
        let from = self.active;
        self.handover = Some(Running {
            machine: Handover::new(from),
            from,
            to: from.other(),
            phases: Vec::new(),
            phase_since: Instant::now(),
            drain: None,
            reply: Some(reply),
            awaits_new: None,
            awaits_down: None,
            look: None,
        });
        self.event("handover", format!("from slot {from} to slot {}", from.other()));
        self.feed_handover(Event::Begin, ctx);
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(stopping())) }.into_actor(self))
    }

    fn may_hand_over(&self) -> Result<(), Refusal> {
        let conflict = |text: String| Err(Refusal::Conflict(text));
        if self.world.kcp.is_none() {
            return conflict("this daemon runs no kcp".to_owned());
        }
        if self.handover.is_some() {
            return conflict("a handover is under way already; see berth status".to_owned());
        }
        let state = |slot: SlotName| self.slots.get(&slot).map_or(ChainState::Down, Owned::state);
        if state(self.active) != ChainState::Ready {
            return conflict(format!("slot {} is not ready: there is nothing to hand over", self.active));
        }
        let to = self.active.other();
        if state(to) != ChainState::Down {
            return conflict(format!("slot {to} is still stopping; see berth status"));
        }
        Ok(())
    }

    fn feed_handover(&mut self, event: Event, ctx: &mut Context<Self>) {
        let Some(running) = &mut self.handover else { return };
        let from = running.from;
        if let Event::Drained(report) = &event {
            running.drain = Some(*report);
            self.event("front", format!("slot {from} is drained: {report}"));
        }
        let Some(running) = &mut self.handover else { return };
        for effect in running.machine.step(event) {
            self.perform_handover(effect, ctx);
        }
    }

    fn perform_handover(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        let (Some(kcp), Some(running)) = (self.world.kcp.clone(), &self.handover) else { return };
        let (from, to) = (running.from, running.to);
        let (old, new) = (self.address(from), self.address(to));
        let Kcp { api, journal, .. } = kcp.clone();
        match effect {
            Effect::AwaitSettled => {
                let settled = async move {
                    Event::Settled(match known(old, from) {
                        Ok(address) => leadership::settled(&*api, from, address).await,
                        Err(reason) => Err(reason),
                    })
                };
                self.look(from, settled, |reason| Event::Settled(Err(reason)), ctx);
            }
            Effect::Stage => self.answer(ctx, async move { Event::Staged(api.stage(to).await) }),
            Effect::Journal(record) => {
                self.phase(record.phase.to_string());
                self.answer(ctx, async move { Event::Journalled(journal.write(&record).await) });
            }
            Effect::StartNew => self.start_new(to, ctx),
            Effect::Canary => self.answer(ctx, async move {
                Event::CanarySeen(match (known(old, from), known(new, to)) {
                    (Ok(old), Ok(new)) => api.canary(old, new).await,
                    (Err(reason), _) | (_, Err(reason)) => Err(reason),
                })
            }),
            Effect::Retarget => self.retarget(to, new, ctx),
            Effect::Drain => {
                let Some(front) = self.front.clone() else { return };
                self.event("front", format!("drains slot {from}, within {} ms", kcp.drain_limit.as_millis()));
                let drain = Drain { slot: from, limit: kcp.drain_limit };
                self.answer(ctx, async move { Event::Drained(front.send(drain).await.unwrap_or_default()) });
            }
            Effect::StopOld => self.stop_slot(from, Some(OLD_SLOT_STOP), ctx),
            Effect::StopNew => self.stop_slot(to, None, ctx),
            Effect::ReleaseLease { old } => {
                let released = async move {
                    Event::LeaseReleased(match known(new, to) {
                        Ok(address) => leadership::release_of_slot(&*api, from, old.holder, address).await,
                        Err(reason) => Err(reason),
                    })
                };
                self.look(to, released, |reason| Event::LeaseReleased(Err(reason)), ctx);
            }
            Effect::AwaitHeld => {
                let held = async move {
                    Event::Held(match known(new, to) {
                        Ok(address) => leadership::held(&*api, to, address).await,
                        Err(reason) => Err(reason),
                    })
                };
                self.look(to, held, |reason| Event::Held(Err(reason)), ctx);
            }
            Effect::Warn(reason) => {
                tracing::warn!(%reason, "handover");
                self.event("handover", format!("warning: {reason}"));
            }
            Effect::Finish { rolled_back } => self.finish_handover(rolled_back, ctx),
        }
    }

    /// Runs one call of the plan and feeds its answer back.
    fn answer(&self, ctx: &mut Context<Self>, call: impl Future<Output = Event> + 'static) {
        ctx.spawn(call.into_actor(self).map(|event, root, ctx| root.feed_handover(event, ctx)));
    }

    /// Runs a wait on the lease through the kcp of `through`. Should that kcp go, the wait is over, as lost.
    fn look(
        &mut self,
        through: SlotName,
        wait: impl Future<Output = Event> + 'static,
        lost: fn(String) -> Event,
        ctx: &mut Context<Self>,
    ) {
        let task = ctx.spawn(wait.into_actor(self).map(|event, root, ctx| {
            if let Some(running) = &mut root.handover {
                running.look = None;
            }
            root.feed_handover(event, ctx);
        }));
        if let Some(running) = &mut self.handover {
            running.look = Some(Look { through, task, lost });
        }
    }

    fn start_new(&mut self, to: SlotName, ctx: &mut Context<Self>) {
        let deadline = ctx.run_later(NEW_SLOT_READY, |root, ctx| {
            root.new_slot(Err(format!("not ready within {} s", NEW_SLOT_READY.as_secs())), ctx);
        });
        if let Some(running) = &mut self.handover {
            running.awaits_new = Some(deadline);
        }
        if let Some(slot) = self.slots.get_mut(&to) {
            slot.go_up();
        }
    }

    fn new_slot(&mut self, result: Result<(), String>, ctx: &mut Context<Self>) {
        let Some(running) = &mut self.handover else { return };
        let Some(deadline) = running.awaits_new.take() else { return };
        ctx.cancel_future(deadline);
        let to = running.to;
        self.feed_handover(Event::Started(result.map_err(|reason| format!("slot {to}: {reason}"))), ctx);
    }

    fn retarget(&mut self, to: SlotName, new: Option<SocketAddr>, ctx: &mut Context<Self>) {
        let (front, address) = match (self.front.clone(), known(new, to)) {
            (Some(front), Ok(address)) => (front, address),
            // It was ready and has died since: the old one still serves, so nobody has to notice.
            (_, Err(reason)) => return self.answer(ctx, async { Event::Retargeted(Err(reason)) }),
            (None, _) => return,
        };
        let target = Some((to, address));
        self.active = to;
        self.target = target;
        self.forget_leadership(ctx);
        let retarget = async move { front.send(Retarget(target)).await };
        ctx.spawn(retarget.into_actor(self).map(move |result, root, ctx| {
            root.retargeted(target, result);
            root.feed_handover(Event::Retargeted(Ok(())), ctx);
        }));
    }

    fn stop_slot(&mut self, slot: SlotName, hurry: Option<Duration>, ctx: &mut Context<Self>) {
        let Some(owned) = self.slots.get_mut(&slot) else { return };
        owned.go_down(hurry);
        if owned.is_down() {
            self.answer(ctx, async move { Event::Stopped(slot) });
        } else if let Some(running) = &mut self.handover {
            running.awaits_down = Some(slot);
        }
    }

    /// News of the slots, as the plan waits for them.
    pub(super) fn handover_news(&mut self, news: &ChainNews, ctx: &mut Context<Self>) {
        let Some(running) = &mut self.handover else { return };
        let is_lost = |look: &mut Look| look.through.chain() == news.chain && news.state != ChainState::Ready;
        if let Some(look) = running.look.take_if(is_lost) {
            ctx.cancel_future(look.task);
            let reason = news.reason.clone().unwrap_or_default();
            let lost = (look.lost)(format!("slot {} is no longer ready: {reason}", look.through));
            return self.feed_handover(lost, ctx);
        }
        if running.awaits_new.is_some() && news.chain == running.to.chain() {
            match news.state {
                ChainState::Ready => self.new_slot(Ok(()), ctx),
                state if state.needs_an_operator() => {
                    self.new_slot(Err(news.reason.clone().unwrap_or_default()), ctx);
                }
                _ => {}
            }
        } else if let Some(slot) = running.awaits_down
            && slot.chain() == news.chain
            && news.state == ChainState::Down
        {
            running.awaits_down = None;
            self.feed_handover(Event::Stopped(slot), ctx);
        }
    }

    fn phase(&mut self, phase: String) {
        let Some(running) = &mut self.handover else { return };
        let took = running.phase_since.elapsed();
        running.phase_since = Instant::now();
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let line = format!("{phase} after {took_ms} ms");
        running.phases.push(PhaseStatus { phase, took_ms });
        self.event("handover", line);
    }

    fn finish_handover(&mut self, rolled_back: Option<String>, ctx: &mut Context<Self>) {
        let Some(running) = self.handover.take() else { return };
        let mut status = running.status();
        status.outcome = match &rolled_back {
            Some(reason) => HandoverOutcome::RolledBack(reason.clone()),
            None => HandoverOutcome::Done,
        };
        self.event(
            "handover",
            rolled_back.map_or("done".to_owned(), |reason| format!("rolled back: {reason}")),
        );
        if matches!(status.outcome, HandoverOutcome::RolledBack(_)) {
            // The slot that went may have taken the lease with it.
            self.led_by = None;
        }
        self.handovers.count(&status);
        self.last_handover = Some(status.clone());
        if let Some(reply) = running.reply {
            let _ = reply.send(Ok(Reply::Handover(Box::new(status))));
        }
        // What waited for the handover's end: leadership is looked after again.
        self.settle(ctx);
    }

    /// The daemon stops: both slots go, and the journal already says which one the front belongs to.
    pub(super) fn abandon_handover(&mut self, ctx: &mut Context<Self>) {
        let Some(running) = self.handover.take() else { return };
        for task in running.awaits_new.into_iter().chain(running.look.map(|look| look.task)) {
            ctx.cancel_future(task);
        }
        self.event("handover", "abandoned: the daemon is stopping");
    }
}

fn known(address: Option<SocketAddr>, slot: SlotName) -> Result<SocketAddr, String> {
    address.ok_or_else(|| format!("slot {slot} does not serve"))
}
