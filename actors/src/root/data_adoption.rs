//! The root's part in `berth cluster adopt`: only a cluster that the identity guard refused has its data adopted, because only
//! of that one it is known that its database answers and that no Kubernetes runs on it.

use super::Root;
use super::tenants::{Answer, arrival, refuse};
use crate::data_adoption::Consent;
use crate::message::{Refusal, Reply};
use crate::status::ChainState;
use actix::prelude::*;
use std::sync::Arc;

impl Root {
    fn may_adopt(&self, name: &str) -> Result<(), Refusal> {
        self.may_change(name)?;
        let Some(tenant) = self.tenants.get(name) else { return Ok(()) };
        let text = match tenant.state() {
            ChainState::Refused => return Ok(()),
            ChainState::Down | ChainState::Stopping => {
                format!(
                    "{name} is stopped: berth cluster start {name} has the identity guard look at its data"
                )
            }
            ChainState::Degraded | ChainState::Done => format!(
                "{name} was not refused by the identity guard, it has given up ({}): berth cluster retry {name}",
                tenant.reason()
            ),
            ChainState::Ready | ChainState::Recovering | ChainState::Starting => {
                format!("{name} was not refused by the identity guard: its Kubernetes runs, or is about to")
            }
        };
        Err(Refusal::Conflict(text))
    }

    pub(super) fn plan_adoption(&self, name: String) -> Answer {
        if let Err(refusal) = self.may_adopt(&name) {
            return refuse(refusal);
        }
        let estate = Arc::clone(&self.world.estate);
        let plan = async move { Ok(Reply::Adoption(Box::new(estate.plan_adoption(&name).await?))) };
        Box::pin(plan.into_actor(self))
    }

    /// Answered when the cluster is ready. A stop that came meanwhile is not undone: the data are adopted all the same.
    pub(super) fn adopt_data(&mut self, name: String, consent: Consent) -> Answer {
        if let Err(refusal) = self.may_adopt(&name) {
            return refuse(refusal);
        }
        let (estate, adopted) = (Arc::clone(&self.world.estate), name.clone());
        self.adopting.insert(name.clone());
        let adopt = async move { estate.adopt_data(&adopted, &consent).await };
        Box::pin(
            adopt
                .into_actor(self)
                .map(move |adopted, root, _| {
                    root.adopting.remove(&name);
                    adopted?;
                    root.event(&name, "its data were adopted");
                    let tenant = root.tenants.get_mut(&name);
                    let Some(tenant) = tenant.filter(|tenant| tenant.state() == ChainState::Refused) else {
                        let text =
                            format!("the data of {name} are adopted; another command changed it meanwhile");
                        return Err(Refusal::Conflict(text));
                    };
                    tenant.retry();
                    Ok(root.waiters.for_chain(&name, ChainState::Ready))
                })
                .then(|wait, root, _| async move { arrival(wait?).await }.into_actor(root)),
        )
    }
}
