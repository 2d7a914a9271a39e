//! What every connection of one process shares, and the two facts that change: how far the start is, and the end.

use super::health::{Progress, Vitals};
use super::material::Tokens;
use super::upstream::Upstream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use time::OffsetDateTime;
use tokio::sync::watch;

/// How long a health check waits for the store; Kubernetes' own default.
const STORE_DEADLINE: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ending {
    No,
    /// Since the signal: the listener lives, but objects are no longer served.
    Terminating,
    /// Since the end of the shutdown delay: no new connection, idle ones end, no more leading.
    Closing,
}

#[derive(Debug)]
pub(super) struct State {
    pub tokens: Tokens,
    pub upstream: Upstream,
    pub shard: Shard,
    pub goaway_chance: f64,
    pub lease_retry: Duration,
    pub half_close: bool,
    /// While there is such a file, no watch shows an event.
    pub silent_watches: Option<PathBuf>,
    /// The start will never end: told to, or the backend's does not.
    pub hung: AtomicBool,
    pub backend_log: PathBuf,
    pub progress: watch::Sender<Progress>,
    pub ending: watch::Sender<Ending>,
}

/// What the Shard object says.
#[derive(Debug)]
pub(super) struct Shard {
    pub base_url: String,
    pub external_url: String,
    pub virtual_workspace_url: String,
    pub since: OffsetDateTime,
}

impl State {
    pub(super) async fn vitals(&self) -> Vitals {
        Vitals {
            store: self.store_answers().await,
            progress: *self.progress.borrow(),
            hung: self.hung(),
            terminating: self.terminating(),
        }
    }

    /// The backend's own view of its store, within a deadline.
    pub(super) async fn store_answers(&self) -> bool {
        let check = self.upstream.get("/readyz/etcd");
        matches!(tokio::time::timeout(STORE_DEADLINE, check).await, Ok(Ok((status, _))) if status.is_success())
    }

    pub(super) fn hung(&self) -> bool {
        self.hung.load(Ordering::Relaxed)
    }

    pub(super) fn terminating(&self) -> bool {
        *self.ending.borrow() >= Ending::Terminating
    }

    /// Resolves once the end has come this far. Cancel-safe.
    pub(super) fn reached(&self, ending: Ending) -> impl Future<Output = ()> + Send + 'static {
        let mut receiver = self.ending.subscribe();
        async move {
            // An error means the process state is gone, which is later than any ending.
            let _ = receiver.wait_for(|now| *now >= ending).await;
        }
    }
}
