//! The root's part in `berth cluster restore`: a new cluster whose data are there already. All or nothing, as a creation is.

use super::Root;
use super::tenants::{Answer, refuse};
use crate::host::{Distribution, TenantRecord};
use crate::message::Refusal;
use actix::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;

impl Root {
    /// `staging`: the data, verified, of a cluster of that `distribution`. Answered when it is ready.
    pub(super) fn restore(&mut self, name: String, staging: PathBuf, distribution: Distribution) -> Answer {
        let record = match self.new_record(&name) {
            Ok(record) => TenantRecord { distribution, ..record },
            Err(refusal) => return refuse(refusal),
        };
        self.records.insert(name, record.clone());
        let (pen, estate, placed) = (Arc::clone(&self.pen), Arc::clone(&self.world.estate), record.clone());
        let place = async move {
            let _turn = pen.lock().await;
            estate.place_restored(&placed, &staging).await.map_err(Refusal::Failed)
        };
        Box::pin(
            place.into_actor(self).then(|placed, root, ctx| root.created(placed, record, "restored", ctx)),
        )
    }
}
