//! Flies the canary of the slot that serves, and restarts its kine when the watches have stalled (K9: on the same port, kcp
//! rides through). At home while nothing serves, while the store is down and during a handover, which has a canary of its own.

use super::{KCP, Root};
use crate::canary::{Cadence, Canary, Verdict};
use crate::host::NoPulse;
use crate::identity::{Identity, SlotName};
use crate::message::TreeEvent;
use crate::spec::Signal;
use crate::status::{CanaryState, CanaryStatus, ChainState};
use actix::prelude::*;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The step of a slot that its kcp stores through.
pub(super) const KINE: &str = "kine";

/// Whom it flies through. Another process is another perch.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Perch {
    slot: SlotName,
    address: SocketAddr,
    kcp: Identity,
    kine: Identity,
}

#[derive(Debug, Default)]
pub(super) struct Aviary {
    perch: Option<Perch>,
    canary: Canary,
    /// The flight, or the wait for it. There is one of them as long as there is a perch.
    task: Option<SpawnHandle>,
    landed: Option<Instant>,
}

impl Root {
    /// Called after every piece of news; does something only when other processes serve than before.
    pub(super) fn keep_canary(&mut self, ctx: &mut Context<Self>) {
        let Some(cadence) = self.cadence() else { return };
        let perch = self.perch().ok();
        if perch == self.aviary.perch {
            return;
        }
        if let Some(task) = self.aviary.task.take() {
            ctx.cancel_future(task);
        }
        let flies = perch.is_some();
        self.aviary = Aviary { perch, ..Aviary::default() };
        if flies {
            self.wait_for_flight(cadence.interval, ctx);
        }
    }

    fn cadence(&self) -> Option<Cadence> {
        self.world.kcp.as_ref()?.canary
    }

    /// Whom to fly through, or why nobody flies.
    fn perch(&self) -> Result<Perch, &'static str> {
        let is_ready = |state| state == Some(ChainState::Ready);
        if self.handover.is_some() {
            return Err("a handover is under way");
        }
        if !self.is_up() {
            return Err("the daemon is not up");
        }
        // A silence would be the store's, not the watches'.
        if !is_ready(self.store.as_ref().map(super::Owned::state)) {
            return Err("the store is not ready");
        }
        let slot = self.active;
        let owned = self.slots.get(&slot).filter(|owned| is_ready(Some(owned.state())));
        let owned = owned.ok_or("the slot is not ready")?;
        let (kcp, kine) = owned.serving(KCP).zip(owned.serving(KINE)).ok_or("the slot is not ready")?;
        let address = kcp.address.ok_or("kcp has no address")?;
        Ok(Perch { slot, address, kcp: kcp.identity.clone(), kine: kine.identity.clone() })
    }

    fn wait_for_flight(&mut self, wait: Duration, ctx: &mut Context<Self>) {
        self.aviary.task = Some(ctx.run_later(wait, Self::fly));
    }

    fn fly(&mut self, ctx: &mut Context<Self>) {
        let (Some(cadence), Some(perch)) = (self.cadence(), self.aviary.perch.clone()) else { return };
        let Some(api) = self.world.kcp.as_ref().map(|kcp| Arc::clone(&kcp.api)) else { return };
        let flight = async move { api.pulse(perch.address, cadence.deadline).await };
        let task = flight.into_actor(self).map(move |result, root, ctx| root.land(result, cadence, ctx));
        self.aviary.task = Some(ctx.spawn(task));
    }

    fn land(&mut self, result: Result<Duration, NoPulse>, cadence: Cadence, ctx: &mut Context<Self>) {
        let Some(perch) = self.aviary.perch.clone() else { return };
        self.aviary.landed = Some(Instant::now());
        let slot = perch.slot;
        match self.aviary.canary.landed(result, cadence) {
            Verdict::Wait(news) => {
                if let Some(news) = news {
                    self.event("canary", format!("slot {slot}: {news}"));
                }
                self.wait_for_flight(cadence.interval, ctx);
            }
            Verdict::Again(news) => {
                tracing::warn!("the canary of slot {slot}: {news}");
                self.event("canary", format!("slot {slot}: {news}"));
                self.fly(ctx);
            }
            Verdict::Stalled(why) => self.restart_kine(&perch, &why, cadence, ctx),
        }
    }

    /// Its supervisor sees it die like any other, and starts it again in place. Nothing is lost with it: what it answered
    /// for is in the store, and a kine that is deaf to its own watches may be deaf to SIGTERM as well.
    fn restart_kine(&mut self, perch: &Perch, why: &str, cadence: Cadence, ctx: &mut Context<Self>) {
        let subject = format!("{}/{KINE}", perch.slot.chain());
        let what = format!("its watches have stalled ({why}): killed, to be started again on its port");
        tracing::warn!(component = %subject, "{what}");
        let _ = self.world.outside.events.send(TreeEvent { subject, what });
        let (processes, kine) = (Arc::clone(&self.world.outside.processes), perch.kine.clone());
        let kill = async move { processes.signal(&kine, Signal::Kill).await };
        ctx.spawn(kill.into_actor(self).map(|result, _, _| {
            if let Err(reason) = result {
                tracing::warn!(%reason, "a stalled kine was not killed; the canary will find it again");
            }
        }));
        self.wait_for_flight(cadence.interval, ctx);
    }

    pub(super) fn canary_status(&self) -> Option<CanaryStatus> {
        let cadence = self.cadence()?;
        let state = match (self.perch(), self.aviary.canary.latest()) {
            (Err(why), _) => CanaryState::Home(why.to_owned()),
            (Ok(_), None) => CanaryState::Waiting,
            (Ok(_), Some(latest)) => latest.clone(),
        };
        let millis = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Some(CanaryStatus {
            slot: self.active,
            state,
            landed_ago_ms: self.aviary.landed.map(|at| millis(at.elapsed())),
            interval_ms: millis(cadence.interval),
        })
    }
}
