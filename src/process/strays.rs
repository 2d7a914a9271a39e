//! What an earlier daemon left and even SIGKILL does not end: it hangs in the kernel, on a dead disk or network file system.
//!
//! The host keeps each by its pidfd after the survivor search, and starts nothing of its component until the kernel lets it go:
//! SIGKILL is pending, so that is its end. Its record stays, for the next daemon to find it by.

use super::raw;
use super::reap::{self, Target};
use super::survivors::Survivor;
use berth_actors::host::Stray;
use berth_actors::identity::ComponentId;
use std::collections::BTreeMap;
use std::io;
use tokio::sync::watch;

#[derive(Debug, Clone, Default)]
pub(super) struct Strays(watch::Sender<BTreeMap<Target, Survivor>>);

impl Strays {
    /// Watches each until it has ended. Needs a tokio runtime. One that cannot be watched must not be taken for dead: an error.
    pub(super) fn keep(&self, left: BTreeMap<Target, Survivor>) -> io::Result<()> {
        for (target, survivor) in left {
            let Some(pidfd) = reap::open(&target)? else { continue };
            let pidfd = raw::watch(pidfd)?;
            self.0.send_modify(|strays| _ = strays.insert(target.clone(), survivor));
            let strays = self.clone();
            tokio::spawn(async move {
                // An error means that the runtime shuts down.
                if pidfd.readable().await.is_ok() {
                    strays.0.send_modify(|strays| _ = strays.remove(&target));
                }
            });
        }
        Ok(())
    }

    pub(super) fn list(&self) -> Vec<Stray> {
        self.0.borrow().values().map(Stray::from).collect()
    }

    pub(super) fn of(&self, component: &ComponentId) -> Option<Stray> {
        self.list().into_iter().find(|stray| stray.component == *component)
    }

    /// Resolves when none of `component` is left. Cancel-safe.
    pub(super) async fn ended(&self, component: &ComponentId) {
        let mut strays = self.0.subscribe();
        // The sender is in our hand.
        let _ = strays.wait_for(|strays| strays.values().all(|stray| stray.component != *component)).await;
    }
}

impl From<&Survivor> for Stray {
    fn from(Survivor { component, pid, name }: &Survivor) -> Self {
        Self { component: component.clone(), pid: *pid, name: name.clone() }
    }
}
