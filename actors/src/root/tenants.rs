//! The root's commands on tenants. Desired state is written first; the tree follows it.

use super::waiters::{Arrival, Wait, answered, stopping};
use super::{Owned, Root};
use crate::host::TenantRecord;
use crate::message::{Refusal, Reply};
use crate::status::ChainState;
use actix::prelude::*;
use std::sync::Arc;

pub(super) type Answer = ResponseActFuture<Root, Result<Reply, Refusal>>;

pub(super) fn refuse(refusal: Refusal) -> Answer {
    Box::pin(fut::err(refusal))
}

pub(super) fn unknown(name: &str) -> Refusal {
    Refusal::NotFound(format!("there is no cluster {name}; berth cluster list shows those there are"))
}

/// The end of a wait; a waiter that was dropped lost its chain.
pub(super) async fn arrival(wait: Wait) -> Result<Reply, Refusal> {
    let gone = || Err(Refusal::Conflict("the cluster was deleted meanwhile".to_owned()));
    wait.await.unwrap_or_else(|_| gone()).map(|()| Reply::Done)
}

/// The answer that needs no wait: it is there already, or a start cannot bring it there.
fn at_once(name: &str, tenant: &Owned, run: bool, want: ChainState) -> Option<Arrival> {
    if tenant.wants_up() != run {
        return None;
    }
    if tenant.gave_up() {
        let word = if tenant.state() == ChainState::Done { "is done" } else { "has given up" };
        let text = format!("{name} {word} ({}); berth cluster retry {name} tries again", tenant.reason());
        return Some(Err(Refusal::Conflict(text)));
    }
    (tenant.state() == want).then_some(Ok(()))
}

impl Root {
    /// A tenant known from its durable record gets its chain; it is queued when it should run.
    pub(super) fn adopt_record(
        &mut self,
        record: TenantRecord,
        ctx: &mut Context<Self>,
    ) -> Result<(), Refusal> {
        let steps = self.world.estate.tenant(&record.name).map_err(Refusal::Failed)?;
        let owned = self.launch(&record.name, steps, ctx)?;
        self.tenants.insert(record.name.clone(), owned);
        if record.should_run() {
            self.queue.push_back(record.name.clone());
        }
        self.records.insert(record.name.clone(), record);
        Ok(())
    }

    /// Lets queued tenants start while fewer than the bound are starting.
    pub(super) fn start_queued(&mut self) {
        let starting = self.tenants.values().filter(|tenant| tenant.is_starting()).count();
        let mut free = self.world.starts_at_once.saturating_sub(starting);
        while free > 0
            && let Some(name) = self.queue.pop_front()
        {
            if let Some(tenant) = self.tenants.get_mut(&name) {
                tenant.go_up();
                free -= 1;
            }
        }
    }

    /// Whether a command may change this tenant: a deletion that was begun is never taken back.
    pub(super) fn may_change(&self, name: &str) -> Result<(), Refusal> {
        self.is_whole(name)?;
        if self.records.get(name).is_some_and(|record| record.erase) {
            let text = format!("{name} is half deleted; berth cluster delete {name} finishes it");
            return Err(Refusal::Conflict(text));
        }
        Ok(())
    }

    /// Whether it is neither just being created, backed up nor deleted.
    fn is_whole(&self, name: &str) -> Result<(), Refusal> {
        if self.deleting.contains(name) {
            Err(Refusal::Conflict(format!("{name} is being deleted")))
        } else if self.backing_up.contains(name) {
            Err(Refusal::Conflict(format!(
                "{name} is being backed up: wait for its end, or end that command"
            )))
        } else if self.tenants.contains_key(name) {
            Ok(())
        } else if self.records.contains_key(name) {
            Err(Refusal::Conflict(format!("{name} is being created")))
        } else if let Some(reason) = self.unreadable.get(name) {
            Err(Refusal::Conflict(format!("{reason}; then restart the daemon")))
        } else {
            Err(unknown(name))
        }
    }

    /// Writes a record after those before it.
    fn put(&self, record: TenantRecord) -> impl Future<Output = Result<(), Refusal>> + use<> {
        let (pen, estate) = (Arc::clone(&self.pen), Arc::clone(&self.world.estate));
        async move {
            let _turn = pen.lock().await;
            estate.put_tenant(&record).await.map_err(Refusal::Failed)
        }
    }

    /// Removes whatever there is of a tenant, its record last.
    fn erase(&self, name: &str) -> impl Future<Output = Result<(), Refusal>> + use<> {
        let (pen, estate, name) = (Arc::clone(&self.pen), Arc::clone(&self.world.estate), name.to_owned());
        async move {
            let _turn = pen.lock().await;
            estate.erase_tenant(&name).await.map_err(Refusal::Failed)
        }
    }

    pub(super) fn create(&mut self, name: String) -> Answer {
        let record = match self.new_record(&name) {
            Ok(record) => record,
            Err(refusal) => return refuse(refusal),
        };
        // Taken from now on, so that nobody else creates it while its record is written.
        self.records.insert(name, record.clone());
        let write = self.put(record.clone()).into_actor(self);
        Box::pin(write.then(|written, root, ctx| root.created(written, record, "created", ctx)))
    }

    /// The record of a tenant that does not exist yet.
    pub(super) fn new_record(&self, name: &str) -> Result<TenantRecord, Refusal> {
        if self.records.contains_key(name) || self.unreadable.contains_key(name) {
            return Err(Refusal::AlreadyExists(format!("there is a cluster {name} already")));
        }
        self.world.estate.new_tenant(name).map_err(Refusal::BadRequest)
    }

    /// Its record is durable, or never will be. Answered when it is ready.
    pub(super) fn created(
        &mut self,
        written: Result<(), Refusal>,
        record: TenantRecord,
        how: &str,
        ctx: &mut Context<Self>,
    ) -> Answer {
        let name = record.name.clone();
        match written.and_then(|()| self.adopt_record(record, ctx)) {
            Ok(()) => {
                self.event(&name, how);
                let wait = self.arrive(&name, true, ctx);
                Box::pin(arrival(wait).into_actor(self))
            }
            Err(refusal) => self.uncreate(name, refusal),
        }
    }

    /// A tenant that could not be created leaves nothing behind.
    fn uncreate(&self, name: String, refusal: Refusal) -> Answer {
        Box::pin(self.erase(&name).into_actor(self).map(move |erased, root, _| {
            root.records.remove(&name);
            if let Err(reason) = erased {
                tracing::warn!(cluster = name, %reason, "something of a cluster that was not created is left");
            }
            Err(refusal)
        }))
    }

    /// A stop is the end of a pause as well; a start is not: whoever paused it meant it.
    pub(super) fn set_run(&mut self, name: &str, run: bool) -> Answer {
        let allowed =
            self.may_change(name).and_then(|()| if run { self.is_not_paused(name) } else { Ok(()) });
        match (allowed, self.records.get(name)) {
            (Err(refusal), _) => refuse(refusal),
            (Ok(()), None) => refuse(unknown(name)),
            (Ok(()), Some(record)) => self.write_wish(TenantRecord { run, paused: None, ..record.clone() }),
        }
    }

    /// The wish is durable before the tree follows it.
    pub(super) fn write_wish(&mut self, record: TenantRecord) -> Answer {
        let write = self.put(record.clone()).into_actor(self);
        Box::pin(
            write
                .map(move |written, root, ctx| {
                    written.map(|()| {
                        let (name, run) = (record.name.clone(), record.should_run());
                        root.records.insert(name.clone(), record);
                        root.arrive(&name, run, ctx)
                    })
                })
                .then(|wait, root, _| async move { arrival(wait?).await }.into_actor(root)),
        )
    }

    /// Sends a tenant up or down and says when it has arrived there. Whoever waits for the opposite waits in vain now.
    fn arrive(&mut self, name: &str, run: bool, ctx: &mut Context<Self>) -> Wait {
        if run && !self.is_up() {
            return answered(Err(stopping()));
        }
        self.queue.retain(|queued| queued != name);
        let (want, opposite, word) = if run {
            (ChainState::Ready, ChainState::Down, "started")
        } else {
            (ChainState::Down, ChainState::Ready, "stopped")
        };
        let overruled = Refusal::Conflict(format!("{name} was {word} by another command meanwhile"));
        self.waiters.overrule(name, opposite, &overruled);
        let Some(tenant) = self.tenants.get_mut(name) else { return answered(Err(unknown(name))) };
        if let Some(arrival) = at_once(name, tenant, run, want) {
            return answered(arrival);
        }
        let wait = self.waiters.for_chain(name, want);
        if run {
            self.queue.push_back(name.to_owned());
        } else {
            tenant.go_down(None);
        }
        self.settle(ctx);
        wait
    }

    /// Down and up again; desired state stays as it is, so a daemon killed in between still starts it.
    pub(super) fn restart(&mut self, name: &str, ctx: &mut Context<Self>) -> Answer {
        if let Err(refusal) = self.may_change(name).and_then(|()| self.is_not_paused(name)) {
            return refuse(refusal);
        }
        if !self.should_run(name) {
            let text = format!("{name} is stopped; berth cluster start {name} starts it");
            return refuse(Refusal::Conflict(text));
        }
        let (down, name) = (self.arrive(name, false, ctx), name.to_owned());
        Box::pin(
            arrival(down)
                .into_actor(self)
                .map(move |down, root, ctx| {
                    down?;
                    if !root.should_run(&name) {
                        return Err(Refusal::Conflict(format!(
                            "{name} was stopped by another command meanwhile"
                        )));
                    }
                    Ok(root.arrive(&name, true, ctx))
                })
                .then(|wait, root, _| async move { arrival(wait?).await }.into_actor(root)),
        )
    }

    /// One component stops and starts again, for what it reads at its start only. The rest runs on.
    pub(super) fn restart_step(&mut self, name: &str, component: &str) -> Answer {
        if let Err(refusal) = self.may_change(name) {
            return refuse(refusal);
        }
        let Some(tenant) = self.tenants.get_mut(name) else { return refuse(unknown(name)) };
        if !tenant.wants_up() || tenant.state() != ChainState::Ready {
            let text = format!("{name} is not ready: none of its components is restarted on purpose now");
            return refuse(Refusal::Conflict(text));
        }
        tenant.restart_step(component);
        let wait = self.waiters.for_chain(name, ChainState::Ready);
        Box::pin(arrival(wait).into_actor(self))
    }

    fn should_run(&self, name: &str) -> bool {
        self.records.get(name).is_some_and(TenantRecord::should_run)
    }

    /// A chain of kcp may be retried as well: nothing else would clear its give-up but the end of the daemon.
    pub(super) fn retry(&mut self, name: &str) -> Answer {
        if self.deleting.contains(name) {
            return refuse(Refusal::Conflict(format!("{name} is being deleted")));
        }
        match self.owned_mut(name) {
            None => {
                let text = format!("there is no chain {name}; berth status shows those there are");
                return refuse(Refusal::NotFound(text));
            }
            Some(chain) if chain.gave_up() => chain.retry(),
            Some(_) => {
                let text = format!("{name} has not given up: there is nothing to retry");
                return refuse(Refusal::Conflict(text));
            }
        }
        let wait = self.waiters.for_chain(name, ChainState::Ready);
        Box::pin(arrival(wait).into_actor(self))
    }

    /// Stops it, removes everything of it, forgets it. A daemon killed in between finishes it when it comes back; one that
    /// failed can be asked for again.
    pub(super) fn delete(&mut self, name: &str) -> Answer {
        if let Err(refusal) = self.is_whole(name) {
            return refuse(refusal);
        }
        let name = name.to_owned();
        let Some(record) = self.records.get(&name).cloned() else { return refuse(unknown(&name)) };
        self.deleting.insert(name.clone());
        let erased = name.clone();
        Box::pin(
            self.write_wish(TenantRecord { run: false, erase: true, paused: None, ..record })
                .then(move |down, root, _| {
                    let erase = root.erase(&erased);
                    async move {
                        down?;
                        erase.await
                    }
                    .into_actor(root)
                })
                .map(move |result, root, ctx| {
                    root.deleting.remove(&name);
                    result?;
                    if let Some(tenant) = root.tenants.remove(&name) {
                        tenant.dismiss();
                    }
                    root.records.remove(&name);
                    root.event(&name, "deleted");
                    root.settle(ctx);
                    Ok(Reply::Done)
                }),
        )
    }
}
