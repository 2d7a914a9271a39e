//! How a service says that it is ready: a newline on a pipe, or a file that appears.
//!
//! A service's blueprint prepares one before each start and waits for it after. Both are events of the kernel's: nothing is
//! looked at on a timer.

use crate::file_events::FileEvents;
use crate::process;
use berth_actors::host::{GateError, PrepareError, WaitNote};
use berth_actors::spec::Passed;
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug)]
pub(super) enum Readiness {
    /// Running is being ready.
    Running,
    Pipe {
        number: i32,
        /// Our end of the pipe of the latest start, until somebody waits on it.
        ours: Mutex<Option<OwnedFd>>,
    },
    File(PathBuf),
}

impl Readiness {
    pub(super) fn pipe(number: i32) -> Self {
        Self::Pipe { number, ours: Mutex::default() }
    }

    /// Before a start: nothing an earlier life left shall be taken for this one's word. A few short system calls.
    pub(super) fn prepare(&self) -> Result<Option<Passed>, PrepareError> {
        match self {
            Self::Running => Ok(None),
            Self::Pipe { number, ours } => {
                let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|error| {
                    PrepareError::Retry(format!("make the pipe of its readiness: {error}"))
                })?;
                *ours.lock().unwrap_or_else(PoisonError::into_inner) = Some(read);
                Ok(Some(Passed { number: *number, file: Arc::new(write) }))
            }
            Self::File(path) => match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(PrepareError::Fatal(format!("remove {}: {error}", path.display())))
                }
                _ => Ok(None),
            },
        }
    }

    /// Resolves once the service has said so. Cancel-safe as a gate is: a dropped wait is the end of that start.
    pub(super) async fn wait(&self, note: &WaitNote) -> Result<(), GateError> {
        match self {
            Self::Running => Ok(()),
            Self::Pipe { number, ours } => {
                let pipe = ours.lock().unwrap_or_else(PoisonError::into_inner).take();
                // None: a process that an earlier daemon started. Whoever heard it is gone, and it will not say it twice.
                let Some(pipe) = pipe else { return Ok(()) };
                note.say(format!("a newline on its descriptor {number}"));
                newline(pipe, *number, note).await
            }
            Self::File(path) => {
                note.say(format!("the file {}", path.display()));
                appears(path).await
            }
        }
    }
}

async fn newline(pipe: OwnedFd, number: i32, note: &WaitNote) -> Result<(), GateError> {
    let failed = |error: io::Error| GateError::Hopeless(format!("read its descriptor {number}: {error}"));
    let pipe = process::watch(pipe).map_err(failed)?;
    loop {
        let mut ready = pipe.readable().await.map_err(failed)?;
        let mut bytes = [0; 64];
        match rustix::io::read(pipe.get_ref(), &mut bytes) {
            Ok(0) => {
                // Its exit, if that is why, is the better report; if it lives, its deadline ends the wait.
                note.say(format!("nothing any more: it closed its descriptor {number} without a newline"));
                return std::future::pending().await;
            }
            Ok(length) if bytes[..length].contains(&b'\n') => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => ready.clear_ready(),
            Err(error) => return Err(failed(error.into())),
        }
    }
}

async fn appears(path: &Path) -> Result<(), GateError> {
    let failed = |error: io::Error| GateError::Hopeless(error.to_string());
    let mut events = FileEvents::of(path).map_err(|error| failed(error.into()))?;
    while !path.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
        events.changed().await.map_err(|error| failed(error.into()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn a_newline_opens_the_gate_and_an_end_without_one_does_not() {
        let note = WaitNote::default();
        let readiness = Readiness::pipe(3);
        let theirs = readiness.prepare().unwrap().unwrap();
        let mut wait = Box::pin(readiness.wait(&note));
        assert!(wait.as_mut().now_or_never().is_none());
        rustix::io::write(&theirs.file, b"almost").unwrap();
        assert!(wait.as_mut().now_or_never().is_none());
        rustix::io::write(&theirs.file, b" there\n").unwrap();
        wait.await.unwrap();

        drop(readiness.prepare().unwrap());
        let mut wait = Box::pin(readiness.wait(&note));
        tokio::task::yield_now().await;
        assert!(wait.as_mut().now_or_never().is_none());
    }

    #[tokio::test]
    async fn the_file_of_an_earlier_life_counts_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ready");
        let create = || crate::files::write_atomic(&path, b"", None).unwrap();
        create();
        let readiness = Readiness::File(path.clone());
        assert!(readiness.prepare().unwrap().is_none() && !path.exists());
        let note = WaitNote::default();
        let mut wait = Box::pin(readiness.wait(&note));
        assert!(wait.as_mut().now_or_never().is_none());
        create();
        wait.await.unwrap();
    }
}
