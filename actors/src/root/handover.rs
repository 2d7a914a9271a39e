//! Carries the blue/green plan out: each effect of [`crate::handover`] becomes a call, each answer an event. What an earlier
//! daemon left half-done is gone on with in the same way.

use super::leadership::{self, Leads};
use super::waiters::stopping;
use super::{KCP, Kcp, Owned, Root};
use crate::chain::Hangs;
use crate::front::{Drain, Retarget};
use crate::handover::{Effect, Event, Handover, Lost, Phase, Record, Side, Wish};
use crate::identity::SlotName;
use crate::message::{Refusal, Reply};
use crate::status::{ChainState, HandoverOutcome, HandoverStatus, PhaseStatus};
use crate::supervisor::ChainNews;
use actix::prelude::*;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A kcp is ready after 6 to 26 s, 50 s on a busy machine; a hung start is ended by its own gate long before this.
const NEW_SLOT_READY: Duration = Duration::from_secs(120);
/// A start that hung got through at the second try; one that hangs again is not helped by a third, and its clients wait.
const HUNG_STARTS: u32 = 2;
/// A kcp without connections exits within 1.4 s; two of them hung instead, and nobody is left to be hurt by SIGKILL.
pub(super) const OLD_SLOT_STOP: Duration = Duration::from_secs(5);

/// The handover under way.
#[derive(Debug)]
pub(super) struct Running {
    machine: Handover,
    began: Instant,
    /// How long it had taken when its daemon ended.
    before_us: u64,
    phase_since: Instant,
    /// When the latest effect was asked for.
    asked: Instant,
    /// The old slot had been seen to lead for long enough before anything was asked: one look is Berth's own.
    was_settled: bool,
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
    fn new(machine: Handover, reply: Option<oneshot::Sender<Result<Reply, Refusal>>>) -> Self {
        let (now, before_us) = (Instant::now(), machine.record().spent.whole_us);
        Self {
            machine,
            began: now,
            before_us,
            phase_since: now,
            asked: now,
            was_settled: false,
            reply,
            awaits_new: None,
            awaits_down: None,
            look: None,
        }
    }

    fn record(&self) -> &Record {
        self.machine.record()
    }

    /// It runs until its last record is durable and has its place in the history.
    pub(super) fn status(&self) -> HandoverStatus {
        HandoverStatus { outcome: HandoverOutcome::Running, ..self.record().status() }
    }

    fn is_resumed(&self) -> bool {
        !self.record().resumed.is_empty()
    }

    /// Books the time since the latest effect was asked for.
    fn book(&mut self, event: &Event) {
        let took = micros(self.asked.elapsed());
        let from = self.record().from;
        let spent = &mut self.machine.record_mut().spent;
        let part = match event {
            Event::Settled(_) if self.was_settled => return,
            Event::Settled(_) => &mut spent.settle_us,
            Event::Staged(_) => &mut spent.stage_us,
            Event::Journalled(_) => &mut spent.journal_us,
            Event::Started(_) | Event::NewServes(_) => &mut spent.start_us,
            Event::CanarySeen(_) => &mut spent.canary_us,
            Event::Retargeted(_) => &mut spent.retarget_us,
            Event::Drained(_) => &mut spent.drain_us,
            Event::Stopped(slot) if *slot == from => &mut spent.stop_us,
            Event::LeaseReleased(_) => &mut spent.release_us,
            Event::Held(_) => &mut spent.hold_us,
            Event::Begin | Event::Stopped(_) | Event::TakenBack(_) => return,
        };
        *part = part.saturating_add(took);
    }

    /// For the history, once.
    fn remark(&mut self, warning: String) {
        let warnings = &mut self.machine.record_mut().warnings;
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    }

    /// A phase is reached: how long after the one before.
    fn reach(&mut self, phase: Phase) -> PhaseStatus {
        let took = self.phase_since.elapsed();
        self.phase_since = Instant::now();
        let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let reached = PhaseStatus { phase: phase.to_string(), took_ms };
        let whole_us = self.before_us.saturating_add(micros(self.began.elapsed()));
        let record = self.machine.record_mut();
        record.phases.push(reached.clone());
        record.spent.whole_us = whole_us;
        reached
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Root {
    pub(super) fn begin_handover(
        &mut self,
        wish: Wish,
        ctx: &mut Context<Self>,
    ) -> ResponseActFuture<Self, Result<Reply, Refusal>> {
        if let Some(why) = self.against_a_handover().into_iter().next() {
            return Box::pin(fut::err(Refusal::Conflict(why)));
        }
        let (reply, answer) = oneshot::channel();
        let from = self.active;
        let mut machine = Handover::new(from, wish);
        machine.record_mut().began = self.world.kcp.as_ref().map(|kcp| kcp.journal.now());
        self.event("handover", format!("from slot {from} to slot {}", from.other()));
        self.handover = Some(Running::new(machine, Some(reply)));
        self.feed_handover(Event::Begin, ctx);
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(stopping())) }.into_actor(self))
    }

    /// Goes on with the handover that an earlier daemon left in the journal.
    pub(super) fn resume_handover(&mut self, machine: Handover, ctx: &mut Context<Self>) {
        let Record { from, to, phase, .. } = machine.record();
        let phase = machine.record().resumed.last().unwrap_or(phase);
        self.event(
            "handover",
            format!("from slot {from} to slot {to}, resumed: an earlier daemon ended in the phase {phase}"),
        );
        self.handover = Some(Running::new(machine, None));
        self.feed_handover(Event::Begin, ctx);
    }

    /// Everything that speaks against a handover now, as far as the tree knows.
    pub(super) fn against_a_handover(&self) -> Vec<String> {
        if self.world.kcp.is_none() {
            return vec!["this daemon runs no kcp".to_owned()];
        }
        if let Some(running) = &self.handover {
            let Record { from, to, phase, .. } = running.record();
            let whose = if running.is_resumed() { "a handover of an earlier daemon" } else { "a handover" };
            return vec![format!(
                "{whose} is under way already (slot {from} to {to}, in the phase {phase}); see berth status"
            )];
        }
        let state = |slot: SlotName| self.slots.get(&slot).map_or(ChainState::Down, Owned::state);
        let (from, to) = (self.active, self.active.other());
        let mut against = Vec::new();
        if state(from) != ChainState::Ready {
            against.push(format!("slot {from} is not ready: there is nothing to hand over"));
        }
        if state(to) != ChainState::Down {
            against.push(format!("slot {to} is still stopping; see berth status"));
        }
        against
    }

    pub(super) fn feed_handover(&mut self, event: Event, ctx: &mut Context<Self>) {
        if matches!(event, Event::Held(Ok(()))) {
            self.leads = self.process_of(self.active).map(|pid| Leads { pid, since: Instant::now() });
        }
        let Some(running) = &mut self.handover else { return };
        running.book(&event);
        if event == Event::Stopped(running.record().from) && running.asked.elapsed() >= OLD_SLOT_STOP {
            let (from, seconds) = (running.record().from, OLD_SLOT_STOP.as_secs());
            running.remark(format!(
                "slot {from} had not ended {seconds} s after its stop signal, and was killed"
            ));
        }
        if let Event::Drained(report) = &event {
            let from = running.record().from;
            self.event("front", format!("slot {from} is drained: {report}"));
        }
        let Some(running) = &mut self.handover else { return };
        for effect in running.machine.step(event) {
            self.perform_handover(effect, ctx);
        }
    }

    fn perform_handover(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        let Some(kcp) = self.world.kcp.clone() else { return };
        let Some(running) = &mut self.handover else { return };
        running.asked = Instant::now();
        let (from, to, resumed) = (running.record().from, running.record().to, running.is_resumed());
        let (old, new) = (self.address(from), self.address(to));
        let Kcp { api, journal, .. } = kcp.clone();
        match effect {
            Effect::AwaitSettled => {
                self.learn_of(from, ctx);
                let led_since = self.led_since(from);
                if let Some(running) = &mut self.handover {
                    running.was_settled = led_since.is_some_and(leadership::is_settled);
                }
                let settled = async move {
                    Event::Settled(match known(old, from) {
                        Ok(address) => leadership::settled(&*api, from, address, led_since)
                            .await
                            .map(|(lease, _)| Some(lease)),
                        Err(reason) => Err(reason),
                    })
                };
                self.look(from, settled, |reason| Event::Settled(Err(reason)), ctx);
            }
            Effect::Stage => {
                let Some(running) = &self.handover else { return };
                let wish = running.record().wish.clone();
                self.answer(ctx, async move { Event::Staged(api.stage(to, &wish).await) });
            }
            Effect::Journal(phase) => {
                let Some(running) = &mut self.handover else { return };
                let reached = running.reach(phase);
                if phase.is_over() {
                    running.machine.record_mut().ended = Some(journal.now());
                }
                let record = running.record().clone();
                self.event("handover", format!("{} after {} ms", reached.phase, reached.took_ms));
                self.answer(ctx, async move { Event::Journalled(journal.write(&record).await) });
            }
            Effect::StartNew => {
                self.learn_of(to, ctx);
                self.await_new(to, ctx);
            }
            Effect::AwaitNew => self.await_new(to, ctx),
            Effect::Canary => self.answer(ctx, async move {
                Event::CanarySeen(match (known(old, from), known(new, to)) {
                    (Ok(old), Ok(new)) => api.canary(old, new).await,
                    (Err(reason), _) | (_, Err(reason)) => Err(reason),
                })
            }),
            Effect::Retarget => self.retarget(to, ctx),
            Effect::TakeBack => self.take_back(from, ctx),
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
                        // The new slot may have come back as another leader since, and its lease is as dead.
                        Ok(address) if resumed => leadership::release_stale(&*api, to, address).await,
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
                if let Some(running) = &mut self.handover {
                    running.remark(reason);
                }
            }
            Effect::Finish { rolled_back } => {
                let Some(running) = &self.handover else { return };
                let record = running.record().clone();
                let remember = async move { journal.remember(&record).await };
                ctx.spawn(remember.into_actor(self).map(move |remembered, root, ctx| {
                    if let Err(reason) = remembered {
                        root.event("handover", format!("warning: not in the history: {reason}"));
                    }
                    root.finish_handover(rolled_back, ctx);
                }));
            }
        }
    }

    /// Has the record say what a slot runs. Nothing waits for it.
    fn learn_of(&mut self, slot: SlotName, ctx: &mut Context<Self>) {
        let Some(api) = self.world.kcp.as_ref().map(|kcp| Arc::clone(&kcp.api)) else { return };
        self.note_process(slot);
        let side = async move { api.side(slot).await };
        ctx.spawn(side.into_actor(self).map(move |side, root, _| {
            let Some(running) = &mut root.handover else { return };
            let record = running.machine.record_mut();
            let known = record.side_mut(slot);
            let process = known.process.take();
            *known = Side { process, ..side };
        }));
    }

    /// Which process is the kcp of `slot` now.
    fn note_process(&mut self, slot: SlotName) {
        let process = self.slots.get(&slot).and_then(|owned| Some(owned.serving(KCP)?.identity.clone()));
        if let (Some(running), Some(process)) = (&mut self.handover, process) {
            running.machine.record_mut().side_mut(slot).process = Some(process);
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

    /// Starts the new slot where it does not run yet, and waits for its readiness.
    fn await_new(&mut self, to: SlotName, ctx: &mut Context<Self>) {
        let deadline = ctx.run_later(NEW_SLOT_READY, |root, ctx| {
            root.new_slot(Err(format!("not ready within {} s", NEW_SLOT_READY.as_secs())), ctx);
        });
        if let Some(running) = &mut self.handover {
            running.awaits_new = Some(deadline);
        }
        let Some(slot) = self.slots.get_mut(&to) else { return };
        // The active one is started as ever: once its store is there.
        if self.active != to {
            slot.go_up();
        }
        let (state, reason) = (slot.state(), slot.reason());
        self.hear_of_new(state, reason, ctx);
    }

    fn hear_of_new(&mut self, state: ChainState, reason: String, ctx: &mut Context<Self>) {
        match state {
            ChainState::Ready => self.new_slot(Ok(()), ctx),
            state if state.needs_an_operator() => self.new_slot(Err(reason), ctx),
            _ => {}
        }
    }

    fn new_slot(&mut self, result: Result<(), String>, ctx: &mut Context<Self>) {
        let Some(running) = &mut self.handover else { return };
        let Some(deadline) = running.awaits_new.take() else { return };
        ctx.cancel_future(deadline);
        let (from, to) = (running.record().from, running.record().to);
        let is_active = self.active == to;
        self.note_process(to);
        let result = result.map_err(|reason| format!("slot {to}: {reason}"));
        let old_serves = self.slots.get(&from).is_some_and(|old| old.state() == ChainState::Ready);
        let event = if is_active {
            Event::NewServes(result.map_err(|reason| Lost { reason, old_serves }))
        } else {
            Event::Started(result)
        };
        self.feed_handover(event, ctx);
    }

    fn retarget(&mut self, to: SlotName, ctx: &mut Context<Self>) {
        let Some(api) = self.world.kcp.as_ref().map(|kcp| Arc::clone(&kcp.api)) else { return };
        let promoted = async move { api.promote(to).await };
        ctx.spawn(promoted.into_actor(self).map(move |promoted, root, ctx| {
            if root.handover.is_none() {
                return;
            }
            // It was ready and may have died since: the old one still serves, so nobody has to notice.
            let address = promoted.and_then(|()| known(root.address(to), to));
            let (front, address) = match (root.front.clone(), address) {
                (Some(front), Ok(address)) => (front, address),
                (_, Err(reason)) => return root.feed_handover(Event::Retargeted(Err(reason)), ctx),
                (None, _) => return,
            };
            let target = Some((to, address));
            root.active = to;
            root.target = target;
            root.forget_leadership(ctx);
            let retarget = async move { front.send(Retarget(target)).await };
            ctx.spawn(retarget.into_actor(root).map(move |result, root, ctx| {
                root.retargeted(target, result);
                root.feed_handover(Event::Retargeted(Ok(())), ctx);
            }));
        }));
    }

    fn take_back(&mut self, from: SlotName, ctx: &mut Context<Self>) {
        let Some(api) = self.world.kcp.as_ref().map(|kcp| Arc::clone(&kcp.api)) else { return };
        self.active = from;
        self.forget_leadership(ctx);
        self.follow(ctx);
        self.answer(ctx, async move { Event::TakenBack(api.promote(from).await) });
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
        if running.awaits_new.is_some() && news.chain == running.record().to.chain() {
            if let Some(reason) = news.reason.as_ref().filter(|_| !news.state.needs_an_operator()) {
                running
                    .remark(format!("slot {} was not ready at the first try: {reason}", running.record().to));
            }
            // Once the front may be on it, there is no way but to try on.
            if news.hangs.count >= HUNG_STARTS && self.active != running.record().to {
                let Hangs { count, last } = &news.hangs;
                return self.new_slot(Err(format!("hung in {count} starts in a row: {last}")), ctx);
            }
            self.hear_of_new(news.state, news.reason.clone().unwrap_or_default(), ctx);
        } else if let Some(slot) = running.awaits_down
            && slot.chain() == news.chain
            && news.state == ChainState::Down
        {
            running.awaits_down = None;
            self.feed_handover(Event::Stopped(slot), ctx);
        }
    }

    fn finish_handover(&mut self, rolled_back: Option<String>, ctx: &mut Context<Self>) {
        let Some(running) = self.handover.take() else { return };
        let status = running.record().status();
        if rolled_back.is_some() {
            // The slot that went may have taken the lease with it.
            (self.led_by, self.leads) = (None, None);
        }
        self.event(
            "handover",
            rolled_back.map_or("done".to_owned(), |reason| format!("rolled back: {reason}")),
        );
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
