//! Waits on kcp's leader lease, as the handover needs them. The lease is 60 s / 5 s / 2 s and never released, so whoever
//! starts or ends a kcp has to look after it.
//!
//! The API is asked at [`LOOK`]: a lease changes every 2 s, and its holder's log is what tells the slots apart.

use crate::host::{KcpApi, Lease};
use crate::identity::SlotName;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Between two looks at the lease.
const LOOK: Duration = Duration::from_millis(250);
/// For how long a slot must have led before another may start: below 1 s, four starts of seven hung for good; from 2 s on
/// none of thirteen did.
const SETTLED: Duration = Duration::from_secs(2);
/// A lease nobody renews is taken over after 60 s and the candidate's retry (up to 4.4 s).
const TAKEOVER: Duration = Duration::from_secs(75);
/// Deleting takes one call; the rest is patience with an API under load.
const RELEASE: Duration = Duration::from_secs(10);

/// Resolves with the lease once `slot` has led for [`SETTLED`].
pub(super) async fn settled(
    api: &dyn KcpApi,
    slot: SlotName,
    address: SocketAddr,
) -> Result<Option<Lease>, String> {
    let (deadline, mut since) = (Instant::now() + TAKEOVER, None);
    loop {
        let seen = leads(api, slot, address).await;
        if let Ok(Some(lease)) = &seen {
            let since = *since.get_or_insert_with(Instant::now);
            if since.elapsed() >= SETTLED {
                return Ok(Some(lease.clone()));
            }
        } else {
            since = None;
        }
        if Instant::now() >= deadline {
            let seen = seen.err().unwrap_or_else(|| "another process holds it".to_owned());
            return Err(format!("slot {slot} does not hold the lease kcp-controllers: {seen}"));
        }
        sleep(LOOK).await;
    }
}

/// The lease, if `slot` is its holder.
async fn leads(api: &dyn KcpApi, slot: SlotName, address: SocketAddr) -> Result<Option<Lease>, String> {
    let Some(identity) = api.leader_identity(slot).await? else { return Ok(None) };
    Ok(api.lease(address).await?.filter(|lease| lease.holder == identity))
}

/// Resolves once `slot` is the lease's holder.
pub(super) async fn held(api: &dyn KcpApi, slot: SlotName, address: SocketAddr) -> Result<(), String> {
    let deadline = Instant::now() + TAKEOVER;
    loop {
        let seen = leads(api, slot, address).await;
        match seen {
            Ok(Some(_)) => return Ok(()),
            _ if Instant::now() >= deadline => {
                let seen = seen.err().unwrap_or_else(|| "another process holds it".to_owned());
                return Err(format!("slot {slot} did not take the lease kcp-controllers: {seen}"));
            }
            _ => sleep(LOOK).await,
        }
    }
}

/// Deletes the lease while its holder is `gone`: a process that has ended. Another holder's lease is left alone.
pub(super) async fn release(api: &dyn KcpApi, gone: &str, through: SocketAddr) -> Result<(), String> {
    let deadline = Instant::now() + RELEASE;
    loop {
        let outcome = match api.lease(through).await {
            Ok(None) => return Ok(()),
            Ok(Some(lease)) if lease.holder != gone => return Ok(()),
            Ok(Some(lease)) => api.delete_lease(through, &lease).await,
            Err(reason) => Err(reason),
        };
        if Instant::now() >= deadline {
            return Err(format!(
                "the lease kcp-controllers of {gone} was not deleted: {}; the new slot leads after 60 s",
                outcome.err().unwrap_or_else(|| "it is still there".to_owned())
            ));
        }
        sleep(LOOK).await;
    }
}

/// After a start with no other slot alive: whoever holds the lease and is not `slot` is a dead process of an earlier run.
pub(super) async fn release_stale(
    api: &dyn KcpApi,
    slot: SlotName,
    address: SocketAddr,
) -> Result<(), String> {
    let (Some(own), Some(lease)) = (api.leader_identity(slot).await?, api.lease(address).await?) else {
        return Ok(());
    };
    if lease.holder == own { Ok(()) } else { release(api, &lease.holder, address).await }
}
