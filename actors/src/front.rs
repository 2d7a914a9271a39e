//! The actor that owns the front: it alone retargets and drains. Retargets take effect in the order they were asked for; a
//! drain goes on beside them, because the new slot may die and come back on another port meanwhile.

use crate::host::{Dataplane, DrainReport};
use crate::identity::SlotName;
use crate::status::FrontStatus;
use actix::prelude::*;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Sends new connections to this slot, or parks them. Answered once it is in force.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Retarget(pub Option<(SlotName, SocketAddr)>);

/// Ends the connections of a slot. Answered within `limit` and a little.
#[derive(Debug, Message)]
#[rtype(result = "DrainReport")]
pub struct Drain {
    pub slot: SlotName,
    pub limit: Duration,
}

#[derive(Debug, Message)]
#[rtype(result = "FrontStatus")]
pub struct GetFront;

pub struct Front {
    dataplane: Arc<dyn Dataplane>,
}

impl std::fmt::Debug for Front {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Front")
    }
}

impl Front {
    pub fn new(dataplane: Arc<dyn Dataplane>) -> Self {
        Self { dataplane }
    }
}

impl Actor for Front {
    type Context = Context<Self>;
}

impl Handler<Retarget> for Front {
    type Result = AtomicResponse<Self, ()>;

    fn handle(&mut self, Retarget(target): Retarget, _ctx: &mut Self::Context) -> Self::Result {
        let dataplane = Arc::clone(&self.dataplane);
        AtomicResponse::new(Box::pin(async move { dataplane.retarget(target).await }.into_actor(self)))
    }
}

impl Handler<Drain> for Front {
    type Result = ResponseFuture<DrainReport>;

    fn handle(&mut self, drain: Drain, _ctx: &mut Self::Context) -> Self::Result {
        let dataplane = Arc::clone(&self.dataplane);
        Box::pin(async move { dataplane.drain(drain.slot, drain.limit).await })
    }
}

impl Handler<GetFront> for Front {
    type Result = MessageResult<GetFront>;

    fn handle(&mut self, _: GetFront, _ctx: &mut Self::Context) -> Self::Result {
        MessageResult(self.dataplane.status())
    }
}
