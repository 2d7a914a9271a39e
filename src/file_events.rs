//! Tells when one file of a directory may have changed, from the kernel (inotify), without a timer.
//!
//! The log gate and the cloud controller manager wait on it. It never reads the file: the caller looks again and decides.

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use tokio::io::unix::AsyncFd;

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

/// Watches the parent directory, so a file that is created, replaced by a rename or rotated is seen as well.
#[derive(Debug)]
pub struct FileEvents {
    inotify: AsyncFd<OwnedFd>,
    directory: PathBuf,
    name: OsString,
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
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
        let interest = WatchFlags::MODIFY
            | WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR;
        inotify::add_watch(&fd, &directory, interest).map_err(|e| failed(e.into()))?;
        // The sound constructor is unsafe for the sake of descriptors that can be swapped; an OwnedFd cannot.
        #[allow(deprecated)]
        let inotify = AsyncFd::new(fd).map_err(failed)?;
        Ok(Self { inotify, directory, name })
    }

    /// Resolves once something happened to the file since the last call. Cancel-safe: a dropped call loses no event that
    /// it did not report, since events are only taken from the kernel in the poll that returns.
    pub async fn changed(&mut self) -> Result<(), WatchError> {
        loop {
            let failed = |source: io::Error| WatchError { path: self.directory.clone(), source };
            let mut ready = self.inotify.readable().await.map_err(failed)?;
            let mut touched = false;
            let mut buffer = [MaybeUninit::uninit(); EVENT_BUFFER];
            let mut events = inotify::Reader::new(ready.get_inner(), &mut buffer);
            loop {
                match events.next() {
                    Ok(event) => {
                        // A name is missing when the queue overflowed or the directory went away: look again then.
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
