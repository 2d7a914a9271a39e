//! From durable records to chains, once in a daemon's life. Starts nothing itself.

use super::handover::OLD_SLOT_STOP;
use super::store::kines_of_a_dead_store;
use super::waiters::stopping;
use super::{Course, Owned, Root, STORE};
use crate::descent;
use crate::front::Front;
use crate::handover::{Handover, Phase, Record};
use crate::host::{Accounted, Estate, Journal, Recorded, TenantRecord};
use crate::identity::{ComponentId, SlotName};
use crate::message::Refusal;
use crate::spec::Step;
use crate::strays;
use crate::supervisor::Supervisor;
use actix::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is known before the first chain is built.
struct Loaded {
    record: Option<Record>,
    tenants: Vec<TenantRecord>,
    unreadable: BTreeMap<String, String>,
    survivors: BTreeSet<String>,
}

impl Root {
    /// Builds every chain, and has it take charge of what an earlier daemon left of it. The journal says which slot the front
    /// belongs to. A `Down` that comes meanwhile wins.
    pub(super) fn load(&mut self, ctx: &mut Context<Self>) -> ResponseActFuture<Self, Result<(), Refusal>> {
        self.course = Course::Loading;
        let (estate, journal) =
            (Arc::clone(&self.world.estate), self.world.kcp.as_ref().map(|kcp| Arc::clone(&kcp.journal)));
        let (processes, with_kcp) = (Arc::clone(&self.world.outside.processes), self.world.kcp.is_some());
        if let Err(refusal) = self.build_kcp(ctx) {
            self.course = Course::Down;
            return Box::pin(fut::err(refusal));
        }
        let read = async move {
            let record = match journal {
                Some(journal) => recorded(&*journal).await?,
                None => None,
            };
            let mut recorded = estate.tenants().await?;
            let components = components(&*estate, with_kcp, &mut recorded)?;
            let untouched = recorded.unreadable.keys().cloned().collect();
            for stray in processes.reap_strays(&Accounted { components, untouched }).await? {
                tracing::warn!("{stray} of an earlier daemon was ended: nothing here accounts for it");
            }
            let survivors = processes.survivors().await;
            for kine in kines_of_a_dead_store(&survivors) {
                tracing::info!("{kine} is killed: its database died without a daemon");
                processes.kill_survivor(&kine).await?;
            }
            let survivors: BTreeSet<String> =
                survivors.into_iter().map(|component| component.chain).collect();
            let tenants = without_erased(&*estate, recorded.tenants).await;
            Ok(Loaded { record, tenants, unreadable: recorded.unreadable, survivors })
        };
        let read = async move { read.await.map_err(Refusal::Failed) };
        Box::pin(read.into_actor(self).map(|loaded: Result<Loaded, Refusal>, root, ctx| {
            strays::tell(&root.world.outside, ctx);
            let built = loaded.and_then(|loaded| root.build(loaded, ctx));
            if let Err(refusal) = built {
                root.course = Course::Down;
                // Nothing was adopted: what runs runs on, and nobody is told that it is down.
                root.waiters.down(&Err(refusal.clone()));
                root.waiters.loaded(&Err(refusal.clone()));
                return Err(refusal);
            }
            if root.down_after_load {
                root.go_down(ctx);
                root.waiters.loaded(&Err(stopping()));
                return Err(stopping());
            }
            root.settle(ctx);
            root.waiters.loaded(&Ok(()));
            Ok(())
        }))
    }

    fn build(&mut self, loaded: Loaded, ctx: &mut Context<Self>) -> Result<(), Refusal> {
        self.unreadable = loaded.unreadable;
        // The slot beside the active one that must not be stopped yet.
        let mut kept = None;
        let mut resumed = None;
        if let Some(record) = loaded.record {
            self.active = record.active();
            // It is what a handover can go back to until the new slot was seen to serve.
            kept = matches!(record.phase, Phase::Retargeted | Phase::Drained).then_some(record.from);
            resumed = Handover::resume(record);
        }
        for tenant in loaded.tenants {
            self.adopt_record(tenant, ctx)?;
        }
        self.course = Course::Up;
        self.adopt_survivors(&loaded.survivors, kept);
        // A daemon that goes down right away leaves it to the next one.
        if let Some(machine) = resumed.filter(|_| !self.down_after_load) {
            self.resume_handover(machine, ctx);
        }
        Ok(())
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

    /// A chain that should run goes on running, whatever else is starting; the rest of an earlier daemon's is stopped in order.
    fn adopt_survivors(&mut self, survivors: &BTreeSet<String>, kept: Option<SlotName>) {
        let standby = self.active.other();
        for chain in survivors {
            let is_standby = *chain == standby.chain();
            let wanted = if is_standby {
                kept == Some(standby)
            } else {
                self.records.get(chain).is_none_or(TenantRecord::should_run)
            };
            self.queue.retain(|queued| !(wanted && queued == chain));
            // Nobody is connected to the other slot any more: its clients went through the daemon that is gone.
            let hurry = is_standby.then_some(OLD_SLOT_STOP);
            let Some(owned) = self.owned_mut(chain) else { continue };
            owned.adopt();
            if wanted {
                owned.go_up();
            } else {
                owned.give_up_adopted(hurry);
            }
        }
    }

    pub(super) fn launch(
        &self,
        name: &str,
        steps: Vec<Step>,
        ctx: &mut Context<Self>,
    ) -> Result<Owned, Refusal> {
        let (parent, stop_bound) = (ctx.address().recipient(), descent::bound(&steps));
        Supervisor::launch(name, steps, parent, self.world.outside.clone())
            .map(|supervisor| Owned::new(supervisor, stop_bound))
            .map_err(|error| Refusal::Failed(format!("{name}: {error}")))
    }
}

/// Everything the durable records account for.
fn components(
    estate: &dyn Estate,
    with_kcp: bool,
    recorded: &mut Recorded,
) -> Result<BTreeSet<ComponentId>, String> {
    let mut chains = Vec::new();
    if with_kcp {
        chains.push((STORE.to_owned(), estate.store()?));
        for slot in [SlotName::A, SlotName::B] {
            chains.push((slot.chain().to_owned(), estate.slot(slot)?));
        }
    }
    let tenants = std::mem::take(&mut recorded.tenants);
    for tenant in tenants {
        if tenant.erase {
            recorded.tenants.push(tenant);
            continue;
        }
        match estate.tenant(&tenant.name) {
            Ok(steps) => chains.push((tenant.name.clone(), steps)),
            // One tenant that cannot be built stops nobody else.
            Err(reason) => {
                recorded.unreadable.insert(tenant.name, reason);
                continue;
            }
        }
        recorded.tenants.push(tenant);
    }
    let of_chain = |(chain, steps): &(String, Vec<Step>)| {
        steps.iter().map(|step| ComponentId::new(chain, &step.component)).collect::<Vec<_>>()
    };
    Ok(chains.iter().flat_map(of_chain).collect())
}

/// The journal's record. One that is over may have missed its place in the history.
async fn recorded(journal: &dyn Journal) -> Result<Option<Record>, String> {
    let record = journal.read().await?;
    if let Some(over) = record.as_ref().filter(|record| record.phase.is_over())
        && let Err(reason) = journal.remember(over).await
    {
        tracing::warn!(%reason, "the last handover is not in the history");
    }
    Ok(record)
}

/// The tenants there are. A deletion that a dead daemon left half-done is finished first: its processes were strays.
/// One that fails again keeps its record, and stops nobody else.
async fn without_erased(estate: &dyn Estate, tenants: Vec<TenantRecord>) -> Vec<TenantRecord> {
    let mut kept = Vec::new();
    for record in tenants {
        if record.erase {
            match estate.erase_tenant(&record.name).await {
                Ok(()) => continue,
                Err(reason) => tracing::warn!(%reason, "{} is not deleted yet", record.name),
            }
        }
        kept.push(record);
    }
    kept
}
