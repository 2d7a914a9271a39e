//! The whole tree as an operator sees it, asked of every actor at once.

use super::{Owned, Root, handover};
use crate::front::GetFront;
use crate::message::{Refusal, Reply};
use crate::status::{ChainState, ChainStatus, FrontStatus, TreeStatus};
use crate::strays;
use crate::supervisor::GetStatus;
use actix::prelude::*;
use futures::future::join_all;
use std::collections::BTreeMap;

/// A tenant whose record cannot be read has no chain that could tell.
fn refused((name, reason): (String, String)) -> ChainStatus {
    ChainStatus { name, state: ChainState::Refused, reason: Some(reason), paused: None, children: Vec::new() }
}

impl Root {
    pub(super) fn status(&self) -> ResponseFuture<Result<Reply, Refusal>> {
        let chain = |owned: &Owned| owned.addr().send(GetStatus);
        let store = self.store.as_ref().map(chain);
        let slots: Vec<_> = self.slots.values().map(chain).collect();
        let tenants: Vec<_> = self.tenants.values().map(chain).collect();
        let unreadable = self.unreadable.clone();
        let mut pauses = self.pauses();
        let front = self.front.as_ref().map(|front| front.send(GetFront));
        let active_slot = self.world.kcp.is_some().then_some(self.active);
        let strays = strays::lines(&*self.world.outside.processes);
        let canary = self.canary_status();
        let remarks = self.world.outside.processes.remarks();
        let handover =
            self.handover.as_ref().map(handover::Running::status).or_else(|| self.last_handover.clone());
        let handovers = self.handovers.clone();
        Box::pin(async move {
            let gone = |error: MailboxError| Refusal::Failed(format!("a supervisor did not answer: {error}"));
            let store = match store {
                Some(store) => Some(store.await.map_err(gone)?),
                None => None,
            };
            let slots = join_all(slots).await.into_iter().collect::<Result<_, _>>().map_err(gone)?;
            let mut tenants: Vec<ChainStatus> =
                join_all(tenants).await.into_iter().collect::<Result<_, _>>().map_err(gone)?;
            for tenant in &mut tenants {
                tenant.paused = pauses.remove(&tenant.name);
            }
            let tenants = tenants.into_iter().chain(unreadable.into_iter().map(refused)).collect();
            let front = match front {
                Some(front) => front.await.map_err(gone)?,
                None => FrontStatus::default(),
            };
            let services = Vec::new();
            Ok(Reply::Status(Box::new(TreeStatus {
                store,
                slots,
                active_slot,
                front,
                tenants,
                holdings: BTreeMap::new(),
                services,
                strays,
                remarks,
                handover,
                handovers,
                canary,
                upkeep: None,
            })))
        })
    }
}
