//! How a command ends: the one table of exit codes, and which error gets which.

use crate::assets::AssetError;
use crate::config::ConfigError;
use crate::control::ClientError;
use crate::files::FileError;
use berth_actors::message::Refusal;
use std::io::{self, Write};
use std::process::ExitCode;

/// For scripts; the numbers never change their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Ok = 0,
    /// It was tried and did not work; the message says why.
    Failed = 1,
    /// Wrong usage or a wrong configuration: trying again cannot help. clap ends with the same number.
    Usage = 2,
    NoDaemon = 3,
    /// There is no such cluster, node, component or log.
    NotFound = 4,
    /// The state of things does not allow it: it exists already, or something else is under way.
    Refused = 5,
    /// `status --check`: the daemon runs, and not everything that should be ready is.
    NotReady = 6,
    /// The daemon: it stopped everything but what nothing can end. Nobody should start it again for that.
    Left = 7,
    /// `cluster certs check`: something has ended, ends soon, or does not fit.
    Unsound = 8,
}

pub(super) const HELP: &str = "Exit codes: 0 ok, 1 failed, 2 wrong usage or configuration, 3 no daemon, 4 not found, \
                               5 refused (it exists already, or not now), 6 not ready (status --check), \
                               7 stopped, but for what cannot be ended (up, dev, supervise), \
                               8 a credential needs seeing to (cluster certs check)";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command did not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Asset(#[from] AssetError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("write the output: {0}")]
    Output(#[from] io::Error),
    #[error("read the log {0}")]
    Log(io::Error),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Usage(String),
}

impl CliError {
    pub fn exit(&self) -> Exit {
        match self {
            Self::Client(error) => match error {
                ClientError::NoDaemon { .. } => Exit::NoDaemon,
                ClientError::Refused(refusal) => match refusal {
                    Refusal::NotFound(_) => Exit::NotFound,
                    Refusal::AlreadyExists(_) | Refusal::Conflict(_) => Exit::Refused,
                    Refusal::BadRequest(_) => Exit::Usage,
                    Refusal::Failed(_) => Exit::Failed,
                },
                ClientError::Permission { .. }
                | ClientError::Stranger { .. }
                | ClientError::Deadline { .. }
                | ClientError::Broken { .. }
                | ClientError::Foreign { .. } => Exit::Failed,
            },
            Self::Asset(error) if error.is_busy() => Exit::Refused,
            Self::Config(_) | Self::Usage(_) => Exit::Usage,
            Self::NotFound(_) => Exit::NotFound,
            // `berth logs web | head`: the reader has what it wanted.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Ok,
            Self::Asset(_) | Self::File(_) | Self::Log(_) | Self::Output(_) => Exit::Failed,
        }
    }
}

/// Says on standard error what went wrong, and how the process should end.
pub fn report(error: &CliError) -> Exit {
    let exit = error.exit();
    if exit != Exit::Ok {
        // Without a standard error there is nobody to tell.
        let _ = writeln!(io::stderr(), "berth: {error}");
    }
    exit
}
