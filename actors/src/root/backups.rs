//! The root's part in `berth cluster backup`: while one is taken, nothing takes the cluster's database away from under it.
//!
//! The control API takes the backup itself; it says when it begins, and by dropping its hold when it ends.

use super::Root;
use super::tenants::{Answer, refuse};
use crate::message::{Refusal, Reply};
use crate::status::ChainState;
use actix::fut;

/// The step whose database is copied.
const DATABASE: &str = "postgres";

impl Root {
    pub(super) fn begin_backup(&mut self, name: &str) -> Answer {
        match self.may_back_up(name) {
            Err(refusal) => refuse(refusal),
            Ok(()) => {
                self.backing_up.insert(name.to_owned());
                self.event(name, "a backup is being taken");
                Box::pin(fut::ok(Reply::Done))
            }
        }
    }

    /// Also of one that was deleted meanwhile: then there is nothing to end.
    pub(super) fn end_backup(&mut self, name: &str) -> Answer {
        if self.backing_up.remove(name) {
            self.event(name, "the backup has ended");
        }
        Box::pin(fut::ok(Reply::Done))
    }

    fn may_back_up(&self, name: &str) -> Result<(), Refusal> {
        self.may_change(name)?;
        let Some(tenant) = self.tenants.get(name) else { return Ok(()) };
        let refused = |text: String| Err(Refusal::Conflict(text));
        if self.is_not_paused(name).is_err() {
            return refused(format!(
                "{name} is paused, and a backup is read from its running database: berth cluster resume {name}, then again"
            ));
        }
        if !tenant.wants_up() {
            return refused(format!(
                "{name} is stopped, and a backup is read from its running database: berth cluster start {name}, then again"
            ));
        }
        match tenant.state() {
            ChainState::Refused => refused(format!(
                "the identity guard refused {name} ({}): data that are not provably its own are not backed up as its own",
                tenant.reason()
            )),
            _ if self.adopting.contains(name) => {
                refused(format!("the data of {name} are being adopted: back it up after that"))
            }
            ChainState::Ready | ChainState::Recovering | ChainState::Degraded | ChainState::Done
                if tenant.serving(DATABASE).is_some() =>
            {
                Ok(())
            }
            _ => refused(format!("{name} does not serve its database now: see berth cluster status {name}")),
        }
    }
}
