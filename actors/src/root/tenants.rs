//! The root's commands on tenants. Desired state is written first; the tree follows it.
//!
//! Commands may cross. The newest one counts: whoever waits for the opposite is told so, and an older command that comes
//! to its next step looks at the record before it goes on. A deletion, once recorded, is never taken back.

use super::{Owned, Root};
use crate::host::TenantRecord;
use crate::message::{Refusal, Reply};
use crate::status::ChainState;
use crate::supervisor::Goal;
use actix::prelude::*;
use std::sync::Arc;
use tokio::sync::oneshot;

type Answer = ResponseActFuture<Root, Result<Reply, Refusal>>;
/// Resolves when a tenant is where a command wants it.
type Waits = oneshot::Receiver<Result<(), Refusal>>;

fn refuse(refusal: Refusal) -> Answer {
    Box::pin(fut::err(refusal))
}

fn unknown(name: &str) -> Refusal {
    Refusal::NotFound(format!("there is no cluster {name}; berth cluster list shows those there are"))
}

fn overtaken(name: &str) -> Refusal {
    Refusal::Conflict(format!("another command on {name} took its place; see berth status"))
}

/// The end of a wait; a waiter that was dropped was overtaken by another command.
async fn arrival(name: String, waits: Result<Waits, Refusal>) -> Result<Reply, Refusal> {
    waits?.await.unwrap_or_else(|_| Err(overtaken(&name))).map(|()| Reply::Done)
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
        let (written, told) = (record.clone(), name.clone());
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
                    root.event(&name, "created");
                    root.arrive(&name, true, ctx)
                })
                .then(move |waits, root, _| arrival(told, waits).into_actor(root)),
        )
    }

    /// Whether a command may change this tenant: it has its chain, and is not on its way out.
    fn changeable(&self, name: &str) -> Result<(), Refusal> {
        let record = self.records.get(name).ok_or_else(|| unknown(name))?;
        if !self.tenants.contains_key(name) {
            return Err(Refusal::Conflict(format!("{name} is just being created")));
        }
        if record.erase {
            let text =
                format!("{name} is to be deleted; if that failed, berth cluster delete {name} finishes it");
            return Err(Refusal::Conflict(text));
        }
        Ok(())
    }

    /// Makes a change of a record durable. One that could not be written did not happen.
    fn write(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut TenantRecord),
    ) -> ResponseActFuture<Self, Result<(), Refusal>> {
        let Some(record) = self.records.get_mut(name) else { return Box::pin(fut::err(unknown(name))) };
        let before = record.clone();
        change(record);
        let (wanted, estate) = (record.clone(), Arc::clone(&self.world.estate));
        let written = wanted.clone();
        let write = async move { estate.put_tenant(&written).await.map_err(Refusal::Failed) };
        Box::pin(write.into_actor(self).map(move |result, root, _| {
            if result.is_err()
                && let Some(record) = root.records.get_mut(&wanted.name).filter(|record| **record == wanted)
            {
                *record = before;
            }
            result
        }))
    }

    pub(super) fn set_run(&mut self, name: &str, run: bool) -> Answer {
        if let Err(refusal) = self.changeable(name) {
            return refuse(refusal);
        }
        let wrote = self.write(name, |record| record.run = run);
        let (name, told) = (name.to_owned(), name.to_owned());
        Box::pin(
            wrote
                .map(move |wrote, root, ctx| wrote.and_then(|()| root.arrive(&name, run, ctx)))
                .then(move |waits, root, _| arrival(told, waits).into_actor(root)),
        )
    }

    /// Down and up again. From now on it should run, so a daemon killed in between starts it.
    pub(super) fn restart(&mut self, name: &str) -> Answer {
        if let Err(refusal) = self.changeable(name) {
            return refuse(refusal);
        }
        let wrote = self.write(name, |record| record.run = true);
        let [first, then, told, told_again] = [(); 4].map(|()| name.to_owned());
        Box::pin(
            wrote
                .map(move |wrote, root, ctx| {
                    wrote.and_then(|()| root.still_wanted(&first, true))?;
                    Ok(root.go(&first, false, ctx))
                })
                .then(move |waits, root, _| arrival(told, waits).into_actor(root))
                .map(move |down, root, ctx| down.and_then(|_| root.arrive(&then, true, ctx)))
                .then(move |waits, root, _| arrival(told_again, waits).into_actor(root)),
        )
    }

    /// An older command looks whether a newer one wants something else.
    fn still_wanted(&self, name: &str, run: bool) -> Result<(), Refusal> {
        let wanted = self.up && self.records.get(name).is_some_and(|record| record.run == run);
        if wanted { Ok(()) } else { Err(overtaken(name)) }
    }

    fn arrive(&mut self, name: &str, run: bool, ctx: &mut Context<Self>) -> Result<Waits, Refusal> {
        self.still_wanted(name, run)?;
        Ok(self.go(name, run, ctx))
    }

    /// Sends a tenant up or down; the answer comes when it has arrived there.
    fn go(&mut self, name: &str, run: bool, ctx: &mut Context<Self>) -> Waits {
        let want = if run { ChainState::Ready } else { ChainState::Down };
        self.queue.retain(|queued| queued != name);
        self.waiters.retain(|waiter| waiter.chain != name || waiter.want == want);
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

    pub(super) fn retry(&mut self, name: &str) -> Answer {
        if let Err(refusal) = self.changeable(name) {
            return refuse(refusal);
        }
        let Some(tenant) = self.tenants.get(name) else { return refuse(unknown(name)) };
        if !matches!(tenant.state, ChainState::Degraded | ChainState::Refused) {
            return refuse(Refusal::Conflict(format!("{name} has not given up: there is nothing to retry")));
        }
        tenant.addr.do_send(Goal::Retry);
        let waits = self.wait_for(name, ChainState::Ready);
        Box::pin(arrival(name.to_owned(), Ok(waits)).into_actor(self))
    }

    /// Stops it, removes everything of it, forgets it. The wish is durable first: a daemon killed in between finishes it
    /// when it comes back. A deletion that failed can be asked for again.
    pub(super) fn delete(&mut self, name: &str) -> Answer {
        match self.changeable(name) {
            Ok(()) => {}
            Err(_) if self.records.get(name).is_some_and(|record| record.erase) => {}
            Err(refusal) => return refuse(refusal),
        }
        if !self.erasing.insert(name.to_owned()) {
            return refuse(Refusal::Conflict(format!("{name} is being deleted already")));
        }
        let estate = Arc::clone(&self.world.estate);
        let wrote = self.write(name, |record| (record.run, record.erase) = (false, true));
        let [first, told, gone, name] = [(); 4].map(|()| name.to_owned());
        Box::pin(
            wrote
                .map(move |wrote, root, ctx| wrote.map(|()| root.go(&first, false, ctx)))
                .then(move |waits, root, _| {
                    async move {
                        arrival(told, waits).await?;
                        estate.erase_tenant(&gone).await.map_err(Refusal::Failed)
                    }
                    .into_actor(root)
                })
                .map(move |erased, root, _| {
                    root.erasing.remove(&name);
                    erased?;
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
