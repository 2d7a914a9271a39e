//! From durable records to chains, once in a daemon's life. Starts nothing itself.

use super::waiters::stopping;
use super::{Course, Owned, Root, STORE};
use crate::front::Front;
use crate::handover::{Phase, Record};
use crate::host::{Estate, Journal, TenantRecord};
use crate::identity::SlotName;
use crate::message::Refusal;
use crate::spec::Step;
use crate::supervisor::Supervisor;
use actix::prelude::*;
use std::sync::Arc;

impl Root {
    /// Builds every chain. The journal says which slot the front belongs to. A `Down` that comes meanwhile wins.
    pub(super) fn load(&mut self, ctx: &mut Context<Self>) -> ResponseActFuture<Self, Result<(), Refusal>> {
        self.course = Course::Loading;
        let (estate, journal) =
            (Arc::clone(&self.world.estate), self.world.kcp.as_ref().map(|kcp| Arc::clone(&kcp.journal)));
        if let Err(refusal) = self.build_kcp(ctx) {
            self.course = Course::Down;
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
            if root.course != Course::Loading {
                return Err(stopping());
            }
            root.course = Course::Down;
            let (record, tenants) = loaded?;
            if let Some(record) = record {
                root.active = record.active();
            }
            for tenant in tenants {
                root.adopt_record(tenant, ctx)?;
            }
            root.course = Course::Up;
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

    pub(super) fn launch(
        &self,
        name: &str,
        steps: Vec<Step>,
        ctx: &mut Context<Self>,
    ) -> Result<Owned, Refusal> {
        let parent = ctx.address().recipient();
        Supervisor::launch(name, steps, parent, self.world.outside.clone())
            .map(Owned::new)
            .map_err(|error| Refusal::Failed(format!("{name}: {error}")))
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
