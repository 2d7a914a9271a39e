//! What the workers, the lobby and the front's handle share: the inboxes of all workers, the places, the way to the lobby.

use super::accept::{self, Place};
use super::inbox::{Errand, Inbox, Joined};
use super::lobby;
use super::shared::Shared;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

/// How many connections a worker may have more than the idlest one before it passes a new one on. Clients wake whichever worker
/// is idle, which spreads them by itself; below this, waking one more thread for each batch of requests cost a fifth more CPU.
pub(super) const SLACK: usize = 64;

#[derive(Debug)]
pub(super) struct Crew {
    pub shared: Arc<Shared>,
    pub places: Arc<Semaphore>,
    inboxes: Vec<Inbox>,
    lobby: Handle,
}

impl Crew {
    pub(super) fn new(shared: Arc<Shared>, lobby: Handle) -> io::Result<Arc<Self>> {
        let inboxes = (0..shared.config.threads.max(1)).map(|_| Inbox::new()).collect::<Result<_, _>>()?;
        let places = Arc::new(Semaphore::new(shared.config.max_connections));
        Ok(Arc::new(Self { shared, places, inboxes, lobby }))
    }

    pub(super) fn workers(&self) -> std::ops::Range<usize> {
        0..self.inboxes.len()
    }

    pub(super) fn inbox(&self, worker: usize) -> &Inbox {
        &self.inboxes[worker]
    }

    /// Gives a client and its server to the worker that has least to do.
    pub(super) fn relay(&self, joined: Joined) {
        if let Some(idlest) = self.inboxes.iter().min_by_key(|inbox| inbox.load()) {
            idlest.add_load();
            idlest.send(Errand::Relay(Box::new(joined)));
        }
    }

    /// Whether `worker` has so much to do that another one should take what comes.
    pub(super) fn is_crowded(&self, worker: usize) -> bool {
        let own = self.inbox(worker).load();
        own > SLACK && self.inboxes.iter().any(|inbox| inbox.load() + SLACK < own)
    }

    /// The client waits until somebody serves it.
    pub(super) fn wait_in_lobby(self: &Arc<Self>, client: OwnedFd, place: Place) {
        self.lobby.spawn(lobby::serve(client, place, Arc::clone(self)));
    }

    /// `worker` is sent [`Errand::Accept`] when there is a place again, and [`Errand::TurnAway`] while there is none for long.
    pub(super) fn wait_for_place(self: &Arc<Self>, worker: usize) {
        let crew = Arc::clone(self);
        self.lobby.spawn(async move {
            while accept::place_free(&crew.places, &crew.shared.config).await.is_err() {
                crew.inbox(worker).send(Errand::TurnAway);
            }
            crew.inbox(worker).send(Errand::Accept);
        });
    }

    /// Resolves when no worker accepts any more.
    pub(super) async fn leave(&self) {
        for inbox in &self.inboxes {
            let (left, told) = oneshot::channel();
            inbox.send(Errand::Leave(left));
            // A worker that is gone accepts nobody.
            let _ = told.await;
        }
    }

    pub(super) fn look_for_orders(&self) {
        self.inboxes.iter().for_each(|inbox| inbox.send(Errand::LookForOrders));
    }

    pub(super) fn close(&self) {
        self.inboxes.iter().for_each(|inbox| inbox.send(Errand::Close));
    }
}
