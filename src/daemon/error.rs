//! Why a daemon did not start. Each part's own error says what to do about it.

use crate::assets::ProvisionError;
use crate::cli::exit::Exit;
use crate::config::ConfigError;
use crate::control::ControlError;
use crate::files::FileError;
use crate::front::FrontError;
use crate::metrics::MetricsError;
use crate::preflight::PreflightError;
use crate::process::lock::LockError;
use crate::process::survivors::SurvivorError;
use berth_actors::message::Refusal;
use std::io;
use std::path::PathBuf;

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
    Metrics(#[from] MetricsError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("become the subreaper of orphaned processes: {0}")]
    Subreaper(#[source] io::Error),
    #[error(
        "uid {uid} has no entry in /etc/passwd: postgres looks the account up by name; add one, or use another account"
    )]
    NamelessAccount { uid: u32 },
    #[error("{0}")]
    Record(String),
    #[error("listen for signals: {0}")]
    Signals(#[source] io::Error),
    #[error("stopped before it had started")]
    Interrupted,
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Services(#[from] crate::supervise::SpecError),
    #[error("find the current directory: {0}")]
    CurrentDir(#[source] io::Error),
    #[error("keep the state in {path}: {source}")]
    Link { path: PathBuf, source: io::Error },
    #[error("become {program}: {source}; every process runs on, and the next daemon adopts it")]
    Exec { program: PathBuf, source: io::Error },
    #[error("start the runtime: {0}")]
    Runtime(#[source] io::Error),
    #[error("{0}")]
    Refused(Refusal),
    /// It stopped, and something is still alive.
    #[error("{0}")]
    Left(Refusal),
    #[error("the supervision tree does not answer: {0}")]
    Tree(actix::MailboxError),
}

impl DaemonError {
    /// Why a stop was not one to the end.
    pub(crate) fn left(self) -> Self {
        match self {
            Self::Refused(left) => Self::Left(left),
            error => error,
        }
    }

    /// As a command of the command line would end.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Config(_) | Self::Services(_) => Exit::Usage,
            Self::Left(_) => Exit::Left,
            _ => Exit::Failed,
        }
    }
}
