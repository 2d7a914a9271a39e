//! What an operator asks of the daemon itself, not of its tree: who it is, and to make way for another binary.
//!
//! The routes put an [`Upgrade`] on the daemon's desk; the daemon looks at the binary, answers, and goes.

use super::api::About;
use berth_actors::message::Refusal;
use std::path::PathBuf;
use tokio::sync::{mpsc, oneshot};

/// A wish to be succeeded by `program`. The answer says whether the daemon will go.
#[derive(Debug)]
pub struct Upgrade {
    pub program: PathBuf,
    pub answer: oneshot::Sender<Result<(), Refusal>>,
}

/// The daemon as the control API sees it.
#[derive(Debug, Clone)]
pub struct DaemonDesk {
    pub about: About,
    pub upgrades: mpsc::Sender<Upgrade>,
}

impl DaemonDesk {
    /// This process, and where its upgrades arrive.
    pub fn open() -> (Self, mpsc::Receiver<Upgrade>) {
        let (upgrades, received) = mpsc::channel(1);
        let about = About {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            instance: uuid::Uuid::new_v4().simple().to_string(),
        };
        (Self { about, upgrades }, received)
    }
}
