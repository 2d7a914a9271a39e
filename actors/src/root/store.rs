//! What the death of kcp's store means to the slots. Within a chain that would be a step's reaction; the store is a chain of
//! its own.

use super::canary::KINE;
use super::{Root, STORE};
use crate::identity::{ComponentId, SlotName};
use crate::message::TreeEvent;
use crate::spec::Signal;
use crate::status::ChainState;
use crate::supervisor::ChainNews;
use actix::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Root {
    /// No kine outlives its database. One whose database is back answers a create that failed on a dead connection, and whose
    /// key it then does not find, with success. Killed while the store is down, it starts again on its port, and kcp, which
    /// rides through, gets an error for what was not written.
    pub(super) fn end_kines_of_a_dead_store(
        &mut self,
        news: &ChainNews,
        before: ChainState,
        ctx: &mut Context<Self>,
    ) {
        let died = before == ChainState::Ready && news.state != ChainState::Ready;
        if news.chain != STORE || !died || !self.is_up() {
            return;
        }
        for slot in [SlotName::A, SlotName::B] {
            let Some(kine) = self.slots.get(&slot).and_then(|owned| owned.serving(KINE)) else { continue };
            let subject = format!("{}/{KINE}", slot.chain());
            let what = "its database died: killed with it, to be started again on its port".to_owned();
            let _ = self.world.outside.events.send(TreeEvent { subject, what });
            let (processes, kine) = (Arc::clone(&self.world.outside.processes), kine.identity.clone());
            let kill = async move { processes.signal(&kine, Signal::Kill).await };
            ctx.spawn(kill.into_actor(self).map(move |result, _, _| {
                if let Err(reason) = result {
                    tracing::warn!(%reason, "kine of slot {slot} was not killed with its database");
                }
            }));
        }
    }
}

/// Kines among what an earlier daemon left whose database ended while no daemon was there to see it. They must be dead before the
/// store is started.
pub(super) fn kines_of_a_dead_store(alive: &BTreeSet<ComponentId>) -> Vec<ComponentId> {
    if alive.iter().any(|component| component.chain == STORE) {
        return Vec::new();
    }
    let is_slot = |chain: &str| [SlotName::A, SlotName::B].iter().any(|slot| slot.chain() == chain);
    alive.iter().filter(|of| of.component == KINE && is_slot(&of.chain)).cloned().collect()
}
