//! Says, once, that everything which should run is ready, and how much of it an earlier daemon had started.
//!
//! Each service's own events say the same one by one; with a thousand of them the first are forgotten before the last are there.

use crate::control::EventHub;
use crate::daemon::systemd;
use crate::off_thread::off_thread;
use actix::prelude::*;
use berth_actors::group::actor::GroupActor;
use berth_actors::message::{Command, Reply, TreeEvent};
use berth_actors::status::{ChildState, TreeStatus};

/// What the event is about. With a blank it is no name that a service could have.
const EVERYTHING: &str = "all services";

/// Silent when one gives up first, or is told to stop: `berth status` says which.
pub(super) async fn tell(group: Addr<GroupActor>, hub: EventHub) {
    let Ok(Ok(_)) = group.send(Command::AwaitReady).await else { return };
    let Ok(Ok(Reply::Status(status))) = group.send(Command::Status).await else { return };
    let what = ready(&status);
    let line = what.clone();
    // A systemd that does not read lets its writers wait.
    off_thread(move || systemd::status(&line)).await;
    hub.record(TreeEvent { subject: EVERYTHING.to_owned(), what });
}

fn ready(status: &TreeStatus) -> String {
    let running = || {
        let children = status.services.iter().flat_map(|service| &service.children);
        children.filter(|child| child.state == ChildState::Ready)
    };
    // This daemon started none of these, so it does not know how long that took.
    let adopted = running().filter(|child| child.ready_took_ms.is_none()).count();
    format!("ready, {adopted} of {} adopted from an earlier daemon", running().count())
}
