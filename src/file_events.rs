//! Tells when one file of a directory may have changed, from the kernel (inotify), without a timer.
//!
//! Log gates, log streams and the cloud controller manager wait on it. It never reads the file: the caller looks again and
//! decides.

use crate::process;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// How often to look when the kernel has no inotify instance left for this user (128 by default). It is the exception, so
/// it may be slow rather than busy.
const WITHOUT_INOTIFY: Duration = Duration::from_secs(1);
/// Room for a batch of events with the longest names; what does not fit is read on the next call.
const EVENT_BUFFER: usize = 4096;

/// The directory cannot be watched.
#[derive(Debug, thiserror::Error)]
#[error("watch {path}: {source}")]
pub struct WatchError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl From<WatchError> for io::Error {
    fn from(error: WatchError) -> Self {
        Self::new(error.source.kind(), error)
    }
}

/// Watches the parent directory, so a file that is created, replaced by a rename or rotated is seen as well.
#[derive(Debug)]
pub struct FileEvents {
    /// `None` when the host is out of inotify instances or watches.
    inotify: Option<AsyncFd<OwnedFd>>,
    directory: PathBuf,
    name: OsString,
    /// Watch of the file that is open, by [`Self::follow`].
    followed: Option<i32>,
}

impl FileEvents {
    /// Needs a tokio runtime. From here on no change is missed: open the watch first, then read the file.
    pub fn of(path: &Path) -> Result<Self, WatchError> {
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let failed = |source: io::Error| WatchError { path: directory.clone(), source };
        let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?.to_owned();
        let interest = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).and_then(|fd| {
            inotify::add_watch(&fd, &directory, interest)?;
            Ok(fd)
        });
        let inotify = match watch {
            Ok(fd) => Some(process::watch(fd).map_err(failed)?),
            Err(Errno::MFILE | Errno::NFILE | Errno::NOSPC) => {
                tracing::warn!(path = %path.display(), "no inotify instance is left (fs.inotify.max_user_instances), looking every second");
                None
            }
            Err(error) => return Err(failed(error.into())),
        };
        Ok(Self { inotify, directory, name, followed: None })
    }

    /// Also tells of writes to this open file, whatever its name is by now, until the next call names another.
    pub fn follow(&mut self, file: impl AsFd) -> Result<(), WatchError> {
        let Some(inotify) = &self.inotify else { return Ok(()) };
        let open = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
        let watch = inotify::add_watch(inotify.get_ref(), open, WatchFlags::MODIFY)
            .map_err(|error| WatchError { path: self.directory.join(&self.name), source: error.into() })?;
        if let Some(old) = self.followed.replace(watch).filter(|old| *old != watch) {
            // Gone already when the old file was deleted.
            let _ = inotify::remove_watch(inotify.get_ref(), old);
        }
        Ok(())
    }

    /// Resolves once something may have happened to the file since the last call. Cancel-safe: a dropped call loses no event that
    /// it did not report, since events are only taken from the kernel in the poll that returns.
    pub async fn changed(&mut self) -> Result<(), WatchError> {
        let Some(inotify) = &self.inotify else {
            tokio::time::sleep(WITHOUT_INOTIFY).await;
            return Ok(());
        };
        let failed = |source: io::Error| WatchError { path: self.directory.clone(), source };
        loop {
            let mut ready = inotify.readable().await.map_err(failed)?;
            let mut touched = false;
            let mut buffer = [MaybeUninit::uninit(); EVENT_BUFFER];
            let mut events = inotify::Reader::new(ready.get_inner(), &mut buffer);
            loop {
                match events.next() {
                    Ok(event) => {
                        // A name is missing when the followed file was written to, the queue overflowed or the directory
                        // went away: look again then.
                        touched |=
                            event.file_name().is_none_or(|name| name.to_bytes() == self.name.as_bytes());
                    }
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR) => {}
                    Err(error) => return Err(failed(error.into())),
                }
            }
            ready.clear_ready();
            if touched {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[tokio::test]
    async fn only_the_named_file_wakes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nodes.json");
        let mut events = FileEvents::of(&path).unwrap();
        crate::files::write_atomic(&dir.path().join("other"), b"x", None).unwrap();
        assert!(events.changed().now_or_never().is_none());
        crate::files::write_atomic(&path, b"[]", None).unwrap();
        events.changed().await.unwrap();
        assert!(events.changed().now_or_never().is_none());
    }

    #[tokio::test]
    async fn a_directory_that_does_not_exist_is_named() {
        let error = FileEvents::of(Path::new("/does/not/exist/nodes.json")).unwrap_err().to_string();
        assert!(error.starts_with("watch /does/not/exist"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_an_inotify_instance_it_says_look_again_each_second() {
        let mut events =
            FileEvents { inotify: None, directory: "/d".into(), name: "n".into(), followed: None };
        let start = tokio::time::Instant::now();
        events.changed().await.unwrap();
        assert_eq!(start.elapsed(), WITHOUT_INOTIFY);
    }
}
