//! Where a component sits: its directories and the account it runs under. Every blueprint builds its spec from one.

use crate::components::Program;
use crate::files::{self, FileError};
use crate::off_thread::off_thread;
use berth_actors::host::PrepareError;
use berth_actors::spec::{ProcessSpec, User};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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
    /// Its own place for temporary files, where it has a uid of its own: what lies in /tmp outlives it, and is seen by all.
    pub temporary: Option<PathBuf>,
}

impl Seat {
    /// Creates the directories, all of them private to the owner. Every step calls it: a removed socket directory
    /// (`/run` is cleaned by others) is healed by the next start.
    pub(super) async fn claim(&self) -> Result<(), PrepareError> {
        let seat = self.clone();
        self.blocking(move || {
            for dir in [&seat.data, &seat.logs, &seat.sockets].into_iter().chain(&seat.temporary) {
                files::private_dir(dir, seat.owner)?;
            }
            [&seat.data, &seat.sockets].into_iter().try_for_each(|dir| passable(dir, seat.owner))
        })
        .await
    }

    /// A spec with the environment every component gets and nothing of the daemon's own.
    pub(super) fn spec(&self, component: &str, program: &Program, args: Vec<String>) -> ProcessSpec {
        let home = self.data.to_string_lossy().into_owned();
        let temporary = self.temporary.as_ref().map(|dir| dir.to_string_lossy().into_owned());
        ProcessSpec {
            program: program.path.clone(),
            arg0: program.arg0.clone(),
            args,
            env: BTreeMap::from([
                ("PATH".to_owned(), PATH.to_owned()),
                ("TZ".to_owned(), "UTC".to_owned()),
                ("HOME".to_owned(), home),
            ])
            .into_iter()
            .chain(temporary.map(|dir| ("TMPDIR".to_owned(), dir)))
            .collect(),
            start_env: BTreeMap::new(),
            dir: self.data.clone(),
            output: self.logs.join(format!("{component}.log")),
            user: self.owner,
            ready: None,
        }
    }

    /// Runs file work off the arbiter.
    pub(super) async fn blocking<T, E>(
        &self,
        work: impl FnOnce() -> Result<T, E> + Send + 'static,
    ) -> Result<T, PrepareError>
    where
        T: Send + 'static,
        E: Failure + Send + 'static,
    {
        let failed = |error: E| if error.is_final() { self.fatal(error) } else { self.retry(error) };
        off_thread(work).await.map_err(failed)
    }

    pub(super) fn retry(&self, error: impl std::fmt::Display) -> PrepareError {
        PrepareError::Retry(format!("{}: {error}", self.chain))
    }

    pub(super) fn fatal(&self, error: impl std::fmt::Display) -> PrepareError {
        PrepareError::Fatal(format!("{}: {error}", self.chain))
    }
}

#[cfg(test)]
impl Seat {
    /// The place of a tenant that is never started.
    pub(super) fn of_demo() -> Self {
        Self {
            chain: "demo".into(),
            data: "/s/demo".into(),
            logs: "/s/demo/log".into(),
            sockets: "/r/demo".into(),
            owner: None,
            temporary: None,
        }
    }
}

/// A failure of file work, and whether another try is pointless. Disks fill up and are emptied, so most are not final.
pub(super) trait Failure: std::fmt::Display {
    fn is_final(&self) -> bool {
        false
    }
}

impl Failure for std::io::Error {}
impl Failure for FileError {}

/// A directory above a chain's own that its account may not pass through.
#[derive(Debug, thiserror::Error)]
enum ClaimError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("uid {uid} cannot pass through {dir}: run `chmod o+x {dir}`, or choose another directory", dir = .dir.display())]
    Closed { uid: u32, dir: PathBuf },
}

impl Failure for ClaimError {
    fn is_final(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }
}

/// Told here by name; a component would only say that some file of its own does not exist.
fn passable(dir: &Path, owner: Option<User>) -> Result<(), ClaimError> {
    let Some(user) = owner else { return Ok(()) };
    for parent in dir.ancestors().skip(1) {
        let failed = |source| FileError { action: "look at", path: parent.to_owned(), source };
        let metadata = parent.metadata().map_err(failed)?;
        let bit = if metadata.uid() == user.uid {
            0o100
        } else if metadata.gid() == user.gid {
            0o010
        } else {
            0o001
        };
        if metadata.mode() & bit == 0 {
            return Err(ClaimError::Closed { uid: user.uid, dir: parent.to_owned() });
        }
    }
    Ok(())
}

/// initdb needs a shell; nothing else looks anything up.
pub(super) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_directory_its_account_cannot_pass_through_is_named() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("state/demo");
        std::fs::create_dir_all(&dir).unwrap();
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(top.path(), 0o711);
        let stranger = Some(User { uid: 4_000_000, gid: 4_000_000 });
        mode(&top.path().join("state"), 0o711);
        passable(&dir, stranger).unwrap();
        mode(&top.path().join("state"), 0o700);
        let error = passable(&dir, stranger).unwrap_err().to_string();
        assert!(error.contains(&format!("chmod o+x {}", top.path().join("state").display())), "{error}");
        passable(&dir, None).unwrap();
    }
}
