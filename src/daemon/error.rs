//! Why a daemon did not start. Each part's own error says what to do about it.

use crate::assets::ProvisionError;
use crate::control::ControlError;
use crate::files::FileError;
use crate::front::FrontError;
use crate::preflight::PreflightError;
use crate::process::lock::LockError;
use crate::process::survivors::SurvivorError;
use berth_actors::message::Refusal;
use std::io;

#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    #[error(transparent)]
    Preflight(#[from] PreflightError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(transparent)]
    Survivors(#[from] SurvivorError),
    #[error(transparent)]
    Provision(#[from] ProvisionError),
    #[error(transparent)]
    Front(FrontError),
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("become the subreaper of orphaned processes: {0}")]
    Subreaper(#[source] io::Error),
    #[error("uid {uid} has no entry in /etc/passwd: postgres looks the account up by name; add one, or use another account")]
    NamelessAccount { uid: u32 },
    #[error("{0}")]
    Refused(Refusal),
    #[error("the supervision tree does not answer: {0}")]
    Tree(actix::MailboxError),
    #[error("a worker thread ended: {0}")]
    Thread(tokio::task::JoinError),
}
