//! Waits on kcp's leader lease, as the handover needs them. The lease is 60 s / 5 s / 2 s and never released, so whoever
//! starts or ends a kcp has to look after it. Its holder's log is what tells the slots apart.
//!
//! A watch tells when to look again; without one the API is asked at [`LOOK`].

use super::{KCP, Root};
use crate::host::{Changes, KcpApi, Lease};
use crate::identity::SlotName;
use actix::prelude::*;
use futures::StreamExt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Between two looks at a lease that cannot be watched, or at a log that does not say yet who its process is.
const LOOK: Duration = Duration::from_millis(250);
/// A watch that says nothing for longer is not believed: a leader renews its lease every 2 s.
const UNHEARD: Duration = Duration::from_secs(3);
/// For how long a slot must have led before another may start: below 1 s, four starts of seven hung for good; from 2 s on
/// none of thirteen did.
const SETTLED: Duration = Duration::from_secs(2);
/// A lease nobody renews is taken over after 60 s and the candidate's retry (up to 4.4 s).
const TAKEOVER: Duration = Duration::from_secs(75);
/// Deleting takes one call; the rest is patience with an API under load.
const RELEASE: Duration = Duration::from_secs(10);

/// Whether who has led since then has led for long enough.
pub(super) fn is_settled(since: Instant) -> bool {
    since.elapsed() >= SETTLED
}

/// What tells of changes of the lease; opened by the first wait.
#[derive(Default)]
struct Watch {
    changes: Option<Changes>,
    was_open: bool,
}

impl Watch {
    /// Resolves when there is something new to look at, after `limit` at the latest.
    async fn change(&mut self, api: &dyn KcpApi, through: SocketAddr, limit: Duration) {
        if self.changes.is_none() {
            let (first, opened) = (!self.was_open, api.lease_changes(through).await.ok());
            self.was_open |= opened.is_some();
            self.changes = opened;
            if first && self.changes.is_some() {
                // It may have changed before the watch was there.
                return;
            }
        }
        let Some(changes) = &mut self.changes else { return sleep(LOOK.min(limit)).await };
        match timeout(limit, changes.next()).await {
            Ok(Some(())) => {}
            // It has ended: the next wait opens another, not at once.
            Ok(None) => {
                self.changes = None;
                sleep(LOOK.min(limit)).await;
            }
            Err(_late) => {}
        }
    }
}

/// A process that was seen to lead, and since when without a break.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leads {
    pub(super) pid: u32,
    pub(super) since: Instant,
}

/// Resolves with the lease once `slot` has led for [`SETTLED`], and with the moment from which on it was seen to. What was seen
/// before (`since`) counts, as long as the same process still leads.
pub(super) async fn settled(
    api: &dyn KcpApi,
    slot: SlotName,
    address: SocketAddr,
    mut since: Option<Instant>,
) -> Result<(Lease, Instant), String> {
    let (deadline, mut watch) = (Instant::now() + TAKEOVER, Watch::default());
    loop {
        let seen = leads(api, slot, address).await;
        let mut left = UNHEARD;
        if let Ok(Some(lease)) = &seen {
            let since = *since.get_or_insert_with(Instant::now);
            left = SETTLED.saturating_sub(since.elapsed());
            if left.is_zero() {
                return Ok((lease.clone(), since));
            }
        } else {
            since = None;
        }
        if Instant::now() >= deadline {
            let seen = seen.err().unwrap_or_else(|| "another process holds it".to_owned());
            return Err(format!("slot {slot} does not hold the lease kcp-controllers: {seen}"));
        }
        watch.change(api, address, left).await;
    }
}

/// The lease, if `slot` is its holder.
async fn leads(api: &dyn KcpApi, slot: SlotName, address: SocketAddr) -> Result<Option<Lease>, String> {
    let Some(identity) = api.leader_identity(slot).await? else { return Ok(None) };
    Ok(api.lease(address).await?.filter(|lease| lease.holder == identity))
}

/// What a handover would have to wait for before it may start another kcp beside `slot`, if anything.
pub(super) async fn unsettled(
    api: &dyn KcpApi,
    slot: SlotName,
    address: SocketAddr,
    since: Option<Instant>,
) -> Option<String> {
    match leads(api, slot, address).await {
        Ok(Some(_)) if since.is_some_and(is_settled) => None,
        Ok(Some(_)) => Some(format!(
            "slot {slot} leads, but was not seen to for {} s yet: the handover waits for that",
            SETTLED.as_secs()
        )),
        Ok(None) => Some(format!(
            "slot {slot} does not hold the lease kcp-controllers: the handover waits {} s for that at most",
            TAKEOVER.as_secs()
        )),
        Err(reason) => Some(format!("whether slot {slot} leads is not known: {reason}")),
    }
}

/// Resolves once `slot` is the lease's holder.
pub(super) async fn held(api: &dyn KcpApi, slot: SlotName, address: SocketAddr) -> Result<(), String> {
    let (deadline, mut watch) = (Instant::now() + TAKEOVER, Watch::default());
    loop {
        let seen = leads(api, slot, address).await;
        match seen {
            Ok(Some(_)) => return Ok(()),
            _ if Instant::now() >= deadline => {
                let seen = seen.err().unwrap_or_else(|| "another process holds it".to_owned());
                return Err(format!("slot {slot} did not take the lease kcp-controllers: {seen}"));
            }
            _ => watch.change(api, address, UNHEARD).await,
        }
    }
}

/// Deletes the lease while its holder is one of `gone`: processes that have ended. Another holder's lease is left alone.
async fn release(api: &dyn KcpApi, gone: &[String], through: SocketAddr) -> Result<(), String> {
    let deadline = Instant::now() + RELEASE;
    loop {
        let outcome = match api.lease(through).await {
            Ok(Some(lease)) if gone.contains(&lease.holder) => api.delete_lease(through, &lease).await,
            Ok(_) => return Ok(()),
            Err(reason) => Err(reason),
        };
        if outcome == Ok(true) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(format!(
                "the lease kcp-controllers of {} was not deleted: {}; the new slot leads after 60 s",
                gone.join(", "),
                outcome.err().unwrap_or_else(|| "it is still there".to_owned())
            ));
        }
        sleep(LOOK).await;
    }
}

/// After the end of `slot`: it held the lease as `holder` when the handover began, and as another if it died and came back
/// since.
pub(super) async fn release_of_slot(
    api: &dyn KcpApi,
    slot: SlotName,
    holder: String,
    through: SocketAddr,
) -> Result<(), String> {
    let mut gone = vec![holder];
    gone.extend(api.leader_identity(slot).await.unwrap_or_default());
    release(api, &gone, through).await
}

/// After a start with no other slot alive: whoever holds the lease and is not `slot` is a dead process of an earlier run.
/// `slot` says who it is only once it tries to lead, which may be after it is ready.
pub(super) async fn release_stale(
    api: &dyn KcpApi,
    slot: SlotName,
    address: SocketAddr,
) -> Result<(), String> {
    let deadline = Instant::now() + TAKEOVER;
    let own = loop {
        match api.leader_identity(slot).await {
            Ok(Some(own)) => break own,
            seen if Instant::now() >= deadline => {
                let seen = seen.err().unwrap_or_else(|| "it does not try".to_owned());
                return Err(format!("who slot {slot} leads as is not known: {seen}"));
            }
            _ => sleep(LOOK).await,
        }
    };
    match api.lease(address).await? {
        Some(lease) if lease.holder != own => release(api, &[lease.holder], address).await,
        _ => Ok(()),
    }
}

impl Root {
    /// A kcp that has just become ready may face a dead process's lease, which would leave it idle for a minute.
    pub(super) fn look_after_leadership(&mut self, ctx: &mut Context<Self>) {
        let Some(kcp) = self.world.kcp.clone().filter(|_| self.is_up() && self.handover.is_none()) else {
            return;
        };
        let slot = self.active;
        // A leader of the other slot that still ends would be a second one without its lease.
        if self.slots.get(&slot.other()).is_some_and(|other| !other.is_down()) {
            return;
        }
        let Some(running) = self.slots.get(&slot).and_then(|owned| owned.serving(KCP)) else {
            return;
        };
        let (pid, Some(address)) = (running.identity.pid, running.address) else { return };
        if self.led_by == Some(pid) {
            return;
        }
        self.led_by = Some(pid);
        self.forget_leadership(ctx);
        let (api, led_since) = (Arc::clone(&kcp.api), self.led_since(slot));
        let look = async move {
            release_stale(&*api, slot, address).await?;
            settled(&*api, slot, address, led_since).await
        };
        let look = ctx.spawn(look.into_actor(self).map(move |result, root, _| {
            root.look = None;
            match result {
                Ok((_, since)) => root.leads = Some(Leads { pid, since }),
                Err(reason) => tracing::warn!(%reason, "slot {slot} does not lead"),
            }
        }));
        self.look = Some(look);
    }

    /// The kcp process of `slot`, while it serves.
    pub(super) fn process_of(&self, slot: SlotName) -> Option<u32> {
        Some(self.slots.get(&slot)?.serving(KCP)?.identity.pid)
    }

    /// Since when the kcp of `slot` has been seen to lead.
    pub(super) fn led_since(&self, slot: SlotName) -> Option<Instant> {
        let leads = self.leads?;
        (self.process_of(slot) == Some(leads.pid)).then_some(leads.since)
    }

    /// A look at a kcp that is no longer the one in question must not speak for its successor.
    pub(super) fn forget_leadership(&mut self, ctx: &mut Context<Self>) {
        if let Some(look) = self.look.take() {
            ctx.cancel_future(look);
        }
    }
}
