//! The root's commands on tenants. Desired state is written first; the tree follows it.

use super::{Owned, Root};
use crate::host::TenantRecord;
use crate::message::{Refusal, Reply};
use crate::status::ChainState;
use crate::supervisor::Goal;
use actix::prelude::*;
use std::sync::Arc;
use tokio::sync::oneshot;

type Answer = ResponseActFuture<Root, Result<Reply, Refusal>>;

fn refuse(refusal: Refusal) -> Answer {
    Box::pin(fut::err(refusal))
}

fn unknown(name: &str) -> Refusal {
    Refusal::NotFound(format!("there is no cluster {name}; berth cluster list shows those there are"))
}

/// The end of a wait; a waiter that was dropped lost its chain.
async fn arrival(answer: oneshot::Receiver<Result<(), Refusal>>) -> Result<(), Refusal> {
    answer.await.unwrap_or_else(|_| Err(Refusal::Conflict("the cluster was deleted meanwhile".to_owned())))
}

/// The answer that needs no wait: it is there already, or a start cannot bring it there.
fn at_once(name: &str, tenant: &Owned, run: bool, want: ChainState) -> Option<Result<(), Refusal>> {
    if tenant.up != run {
        return None;
    }
    if run && matches!(tenant.state, ChainState::Degraded | ChainState::Refused) {
        let reason = tenant.reason.clone().unwrap_or_default();
        let text = format!("{name} has given up ({reason}); berth cluster retry {name} tries again");
        return Some(Err(Refusal::Conflict(text)));
    }
    (tenant.state == want).then_some(Ok(()))
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
        if record.run {
            self.queue.push_back(record.name.clone());
        }
        self.records.insert(record.name.clone(), record);
        Ok(())
    }

    /// Lets queued tenants start while fewer than the bound are starting.
    pub(super) fn start_queued(&mut self) {
        let starting =
            |tenant: &&Owned| tenant.up && matches!(tenant.state, ChainState::Starting | ChainState::Down);
        let mut free =
            self.world.starts_at_once.saturating_sub(self.tenants.values().filter(starting).count());
        while free > 0
            && let Some(name) = self.queue.pop_front()
        {
            if let Some(tenant) = self.tenants.get_mut(&name) {
                tenant.go_up();
                free -= 1;
            }
        }
    }

    pub(super) fn create(&mut self, name: String) -> Answer {
        if self.records.contains_key(&name) {
            return refuse(Refusal::AlreadyExists(format!("there is a cluster {name} already")));
        }
        let record = match self.world.estate.new_tenant(&name) {
            Ok(record) => record,
            Err(reason) => return refuse(Refusal::BadRequest(reason)),
        };
        self.records.insert(name.clone(), record.clone());
        let estate = Arc::clone(&self.world.estate);
        let written = record.clone();
        let write = async move { estate.put_tenant(&written).await.map_err(Refusal::Failed) };
        Box::pin(
            write
                .into_actor(self)
                .map(move |result, root, ctx| {
                    let adopted = result.and_then(|()| root.adopt_record(record, ctx));
                    if let Err(refusal) = adopted {
                        root.records.remove(&name);
                        return Err(refusal);
                    }
                    let answer = root.wait_for(&name, ChainState::Ready);
                    root.event(&name, "created");
                    root.settle(ctx);
                    Ok(answer)
                })
                .then(|answer, root, _| {
                    async move { arrival(answer?).await.map(|()| Reply::Done) }.into_actor(root)
                }),
        )
    }

    pub(super) fn set_run(&mut self, name: &str, run: bool) -> Answer {
        let Some(record) = self.records.get_mut(name) else { return refuse(unknown(name)) };
        record.run = run;
        let (record, estate) = (record.clone(), Arc::clone(&self.world.estate));
        let name = name.to_owned();
        let write = async move { estate.put_tenant(&record).await.map_err(Refusal::Failed) };
        Box::pin(
            write
                .into_actor(self)
                .map(move |result, root, ctx| result.map(|()| root.arrive(&name, run, ctx)))
                .then(|answer, root, _| {
                    async move { arrival(answer?).await.map(|()| Reply::Done) }.into_actor(root)
                }),
        )
    }

    /// Sends a tenant up or down and says when it has arrived there.
    fn arrive(
        &mut self,
        name: &str,
        run: bool,
        ctx: &mut Context<Self>,
    ) -> oneshot::Receiver<Result<(), Refusal>> {
        let want = if run { ChainState::Ready } else { ChainState::Down };
        self.queue.retain(|queued| queued != name);
        if let Some(answer) = self.tenants.get(name).and_then(|tenant| at_once(name, tenant, run, want)) {
            let (reply, waits) = oneshot::channel();
            let _ = reply.send(answer);
            return waits;
        }
        let answer = self.wait_for(name, want);
        if run {
            self.queue.push_back(name.to_owned());
        } else if let Some(tenant) = self.tenants.get_mut(name) {
            tenant.go_down(None);
        }
        self.settle(ctx);
        answer
    }

    /// Down and up again; desired state stays as it is, so a daemon killed in between still starts it.
    pub(super) fn restart(&mut self, name: &str, ctx: &mut Context<Self>) -> Answer {
        if !self.records.contains_key(name) {
            return refuse(unknown(name));
        }
        let (down, name) = (self.arrive(name, false, ctx), name.to_owned());
        Box::pin(
            arrival(down)
                .into_actor(self)
                .map(move |down, root, ctx| down.map(|()| root.arrive(&name, true, ctx)))
                .then(|answer, root, _| {
                    async move { arrival(answer?).await.map(|()| Reply::Done) }.into_actor(root)
                }),
        )
    }

    pub(super) fn retry(&mut self, name: &str) -> Answer {
        let Some(tenant) = self.tenants.get(name) else { return refuse(unknown(name)) };
        if !matches!(tenant.state, ChainState::Degraded | ChainState::Refused) {
            return refuse(Refusal::Conflict(format!("{name} has not given up: there is nothing to retry")));
        }
        tenant.addr.do_send(Goal::Retry);
        let answer = self.wait_for(name, ChainState::Ready);
        Box::pin(async move { arrival(answer).await.map(|()| Reply::Done) }.into_actor(self))
    }

    /// Stops it, removes everything of it, forgets it. A daemon killed in between finds a stopped tenant and its record.
    pub(super) fn delete(&mut self, name: &str) -> Answer {
        if !self.records.contains_key(name) {
            return refuse(unknown(name));
        }
        let (name, estate) = (name.to_owned(), Arc::clone(&self.world.estate));
        let erased = name.clone();
        Box::pin(
            self.set_run(&name, false)
                .then(move |down, root, _| {
                    async move {
                        down?;
                        estate.erase_tenant(&erased).await.map_err(Refusal::Failed)
                    }
                    .into_actor(root)
                })
                .map(move |result, root, _| {
                    result?;
                    if let Some(tenant) = root.tenants.remove(&name) {
                        tenant.addr.do_send(Goal::Dismiss);
                    }
                    root.records.remove(&name);
                    root.waiters.retain(|waiter| waiter.chain != name);
                    root.event(&name, "deleted");
                    Ok(Reply::Done)
                }),
        )
    }
}
