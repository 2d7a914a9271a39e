//! What the front's tasks and its handle share: the target, the slots, the counters.

use super::config::FrontConfig;
use super::peers::Peers;
use super::refusals::Refusals;
use super::slots::{Member, Slot};
use berth_actors::identity::SlotName;
use berth_actors::status::{FrontLimits, FrontStatus, FrontTarget};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::sync::watch;

/// Where new connections go.
pub(super) type Target = Option<(SlotName, SocketAddr)>;

#[derive(Debug)]
pub(super) struct Shared {
    pub config: Arc<FrontConfig>,
    target: watch::Sender<Target>,
    /// Clients that wait for a target now.
    pub parked: watch::Sender<u64>,
    pub peers: Arc<Peers>,
    pub refusals: Refusals,
    a: Arc<Slot>,
    b: Arc<Slot>,
}

impl Shared {
    pub(super) fn new(config: FrontConfig) -> Arc<Self> {
        Arc::new(Self {
            peers: Peers::new(config.max_per_peer),
            config: Arc::new(config),
            target: watch::Sender::new(None),
            parked: watch::Sender::new(0),
            refusals: Refusals::new(),
            a: Slot::new(SlotName::A),
            b: Slot::new(SlotName::B),
        })
    }

    pub(super) fn slot(&self, name: SlotName) -> &Arc<Slot> {
        match name {
            SlotName::A => &self.a,
            SlotName::B => &self.b,
        }
    }

    pub(super) fn retarget(&self, target: Target) {
        self.target.send_replace(target);
    }

    pub(super) fn target(&self) -> Target {
        *self.target.borrow()
    }

    pub(super) fn targets(&self) -> watch::Receiver<Target> {
        self.target.subscribe()
    }

    /// Joins the slot of `target` if it is still the target. Under the target's lock: once [`Shared::retarget`] has returned,
    /// no connection can join the old slot, so a drain that follows knows them all.
    pub(super) fn join(&self, target: (SlotName, SocketAddr)) -> Option<Member> {
        let current = self.target.borrow();
        (*current == Some(target)).then(|| self.slot(target.0).join())
    }

    pub(super) fn status(&self, listen: SocketAddr) -> FrontStatus {
        let (refused_by, left) = self.refusals.so_far();
        let FrontConfig { max_connections, max_per_peer, max_parked, .. } = *self.config;
        FrontStatus {
            listen: Some(listen),
            target: self.target.borrow().map(|(slot, address)| FrontTarget { slot, address }),
            open: self.peers.open() as u64,
            parked: *self.parked.borrow(),
            refused: refused_by.total(),
            refused_by,
            left,
            limits: FrontLimits {
                connections: max_connections as u64,
                per_peer: max_per_peer as u64,
                parked: max_parked as u64,
            },
            per_slot: vec![self.a.status(), self.b.status()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_that_was_replaced_while_it_was_dialled_is_not_joined() {
        let old = (SlotName::A, SocketAddr::from(([127, 0, 0, 1], 1)));
        let restarted = (SlotName::A, SocketAddr::from(([127, 0, 0, 1], 2)));
        let shared = Shared::new(FrontConfig::default());
        assert!(shared.join(old).is_none());
        shared.retarget(Some(old));
        assert!(shared.join(old).is_some());
        shared.retarget(Some(restarted));
        assert!(shared.join(old).is_none() && shared.join(restarted).is_some());
    }
}
