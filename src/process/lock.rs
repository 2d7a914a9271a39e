//! One daemon per state directory.
//!
//! `main` takes the lock before anything else and keeps it for its whole life; the kernel frees it however the daemon dies.

use crate::files::{self, FileError};
use crate::layout::Layout;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum LockError {
    #[error("another daemon ({holder}) runs on {state}: stop it first, or choose another --state", state = .state.display())]
    Held { state: PathBuf, holder: String },
    #[error(transparent)]
    File(#[from] FileError),
}

/// Held until dropped.
#[derive(Debug)]
pub struct StateLock {
    _file: File,
}

impl StateLock {
    /// Creates the state directory where it is missing. Never waits for the lock. Blocking.
    pub fn acquire(layout: &Layout) -> Result<Self, LockError> {
        files::private_dir(layout.state(), None)?;
        let path = layout.lock();
        let failed = |action| {
            let path = path.clone();
            move |source| FileError { action, path, source }
        };
        // Not truncated here: the content belongs to the holder.
        let mut file = fs::OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(failed("open the lock"))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(LockError::Held { state: layout.state().to_owned(), holder: holder(&path) });
            }
            Err(error) => return Err(failed("lock")(error.into()).into()),
        }
        file.set_len(0)
            .and_then(|()| write!(file, "{}", std::process::id()))
            .map_err(failed("write the pid to the lock"))?;
        match files::sweep(layout.state()) {
            Ok(0) => {}
            Ok(swept) => tracing::info!(swept, "removed what a killed daemon left half-written"),
            Err(error) => tracing::warn!(%error, "what a killed daemon left half-written stays"),
        }
        Ok(Self { _file: file })
    }
}

/// The holder writes its pid a moment after it has the lock.
fn holder(lock: &std::path::Path) -> String {
    match files::read_text(lock) {
        Ok(pid) if !pid.is_empty() => format!("pid {pid}"),
        _ => "just starting".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_daemon_is_refused_by_the_name_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path().join("state"), None);
        let first = StateLock::acquire(&layout).unwrap();
        let refusal = StateLock::acquire(&layout).unwrap_err().to_string();
        let (pid, state) = (format!("pid {}", std::process::id()), layout.state().display().to_string());
        assert!(refusal.contains(&pid) && refusal.contains(&state), "{refusal}");

        drop(first);
        StateLock::acquire(&layout).unwrap();
    }
}
