//! Where a component sits: its directories and the account it runs under. Every blueprint builds its spec from one.

use crate::components::Program;
use crate::files;
use berth_actors::host::PrepareError;
use berth_actors::spec::{ProcessSpec, User};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The place of one chain on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seat {
    /// Name of the chain, for error texts.
    pub chain: String,
    /// Everything the chain keeps; also the working directory of its processes.
    pub data: PathBuf,
    pub logs: PathBuf,
    /// Its socket directory: 0700, which is what keeps other accounts away from its sockets.
    pub sockets: PathBuf,
    pub owner: Option<User>,
}

impl Seat {
    /// Creates the directories, all of them private to the owner. Every step calls it: a removed socket directory
    /// (`/run` is cleaned by others) is healed by the next start.
    pub(super) async fn claim(&self) -> Result<(), PrepareError> {
        let seat = self.clone();
        self.blocking(move || {
            for dir in [&seat.data, &seat.logs, &seat.sockets] {
                files::private_dir(dir, seat.owner)?;
            }
            Ok::<_, files::FileError>(())
        })
        .await
    }

    /// A spec with the environment every component gets and nothing of the daemon's own.
    pub(super) fn spec(&self, component: &str, program: &Program, args: Vec<String>) -> ProcessSpec {
        let home = self.data.to_string_lossy().into_owned();
        ProcessSpec {
            program: program.path.clone(),
            arg0: program.arg0.clone(),
            args,
            env: BTreeMap::from([
                ("PATH".to_owned(), PATH.to_owned()),
                ("TZ".to_owned(), "UTC".to_owned()),
                ("HOME".to_owned(), home),
            ]),
            dir: self.data.clone(),
            output: self.logs.join(format!("{component}.log")),
            user: self.owner,
        }
    }

    /// Runs file work off the arbiter. Its failure is worth another try: disks fill up and are emptied.
    pub(super) async fn blocking<T, E>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, PrepareError>
    where
        T: Send + 'static,
        E: std::error::Error + Send + 'static,
    {
        match tokio::task::spawn_blocking(work).await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(error)) => Err(self.retry(error)),
            Err(join) => Err(self.retry(join)),
        }
    }

    pub(super) fn retry(&self, error: impl std::fmt::Display) -> PrepareError {
        PrepareError::Retry(format!("{}: {error}", self.chain))
    }

    pub(super) fn fatal(&self, error: impl std::fmt::Display) -> PrepareError {
        PrepareError::Fatal(format!("{}: {error}", self.chain))
    }
}

/// initdb needs a shell; nothing else looks anything up.
pub(super) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
