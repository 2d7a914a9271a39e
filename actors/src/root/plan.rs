//! What a handover would do, and what past ones did. Changes nothing.

use super::{Root, leadership};
use crate::handover::Phase;
use crate::handover::Wish;
use crate::message::{Refusal, Reply};
use crate::status::{HandoverHistory, HandoverPlan};
use actix::prelude::*;
use std::sync::Arc;

impl Root {
    /// Looks at everything a handover would stumble over, and tells all of it at once.
    pub(super) fn plan_handover(&self, wish: Wish) -> ResponseActFuture<Self, Result<Reply, Refusal>> {
        let Some(kcp) = self.world.kcp.clone() else { return no_kcp() };
        let (from, to) = (self.active, self.active.other());
        let (mut refusals, address) = (self.against_a_handover(), self.address(from));
        let led_since = self.led_since(from);
        let plan = async move {
            let api = Arc::clone(&kcp.api);
            let found = api.examine(to, &wish).await;
            refusals.extend(found.refusals);
            let mut warnings = found.warnings;
            if let Some(address) = address {
                warnings.extend(leadership::unsettled(&*api, from, address, led_since).await);
            }
            let history = kcp.journal.history().await.unwrap_or_else(|reason| {
                warnings.push(reason);
                crate::host::History::default()
            });
            let done = history.records.iter().rev().find(|record| record.phase == Phase::Done);
            let expected = done.map(|record| record.spent);
            let (old, new) = (api.side(from).await, api.side(to).await);
            let new = match &wish {
                Wish::Upgrade { version, program, .. } => {
                    crate::handover::Side { version: version.clone(), program: Some(program.clone()), ..new }
                }
                Wish::Plain | Wish::RotateCertificates => new,
            };
            HandoverPlan { from, to, wish, old, new, address, refusals, warnings, expected }
        };
        Box::pin(async move { Ok(Reply::Plan(Box::new(plan.await))) }.into_actor(self))
    }

    pub(super) fn handover_history(&self) -> ResponseActFuture<Self, Result<Reply, Refusal>> {
        let Some(kcp) = self.world.kcp.clone() else { return no_kcp() };
        let history = async move {
            let history = kcp.journal.history().await.map_err(Refusal::Failed)?;
            let handovers = history.records.iter().map(crate::handover::Record::status).collect();
            Ok(Reply::History(HandoverHistory { handovers, unreadable: history.unreadable }))
        };
        Box::pin(history.into_actor(self))
    }
}

fn no_kcp() -> ResponseActFuture<Root, Result<Reply, Refusal>> {
    Box::pin(fut::err(Refusal::Conflict("this daemon runs no kcp".to_owned())))
}
