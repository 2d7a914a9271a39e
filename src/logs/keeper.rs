//! Keeps the daemon's logs within their limits while their components write.
//!
//! The process host names each log it spawns into or adopts. One inotify instance watches them all, each watch good for one
//! event: a silent component costs nothing, and any number of loud ones wake the daemon twice per [`PACE`]. Rotations run
//! off the arbiter, one at a time. It never looks at what is written.

use super::rotate::{self, RotateError};
use super::{Limits, log::Log};
use crate::off_thread::off_thread;
use crate::process;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

/// From the first write after a look to the next look. A log may exceed its limit by what is written in this time.
const PACE: Duration = Duration::from_secs(5);
/// From look to look at a log that the kernel has no watch left for (fs.inotify.max_user_watches). The exception, so it
/// may be slow rather than busy.
const UNWATCHED_PACE: Duration = Duration::from_secs(60);
/// Room for a few hundred events without a name; what does not fit is read next.
const EVENT_BUFFER: usize = 8192;

/// The logs that are kept. Cheap to clone; the clones share everything.
#[derive(Debug, Clone)]
pub struct LogKeeper {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    limits: Limits,
    pace: Duration,
    /// Opened with the first log, for it needs the runtime; `None` inside when the host is out of instances.
    inotify: OnceLock<Option<AsyncFd<OwnedFd>>>,
    logs: Mutex<Logs>,
    /// A log joined those that have no watch.
    unwatched: Notify,
    /// One rotation at a time: it takes its space twice for a moment.
    rotating: Mutex<()>,
}

#[derive(Debug, Default)]
struct Logs {
    watched: HashMap<i32, PathBuf>,
    unwatched: BTreeSet<PathBuf>,
    /// Those whose last rotation failed, which was said.
    failing: HashSet<PathBuf>,
}

impl LogKeeper {
    /// Keeps nothing yet.
    pub fn new(limits: Limits) -> Self {
        Self::paced(limits, PACE)
    }

    pub(super) fn paced(limits: Limits, pace: Duration) -> Self {
        let (inotify, logs) = (OnceLock::new(), Mutex::default());
        let (unwatched, rotating) = (Notify::new(), Mutex::default());
        Self { shared: Arc::new(Shared { limits, pace, inotify, logs, unwatched, rotating }) }
    }

    #[cfg(test)]
    pub(super) fn unwatching(limits: Limits) -> Self {
        let keeper = Self::new(limits);
        keeper.shared.inotify.get_or_init(|| None);
        tokio::spawn(Arc::clone(&keeper.shared).run());
        keeper
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        let logs = self.shared.logs();
        logs.watched.len() + logs.unwatched.len()
    }

    /// Keeps `log`, which nobody writes to yet; its next writer's output begins at the returned offset. Blocking; needs a
    /// tokio runtime.
    pub fn begin(&self, log: &Path) -> io::Result<u64> {
        self.open();
        self.shared.watch(log);
        // Where a rotation goes on, be it another log's, nothing here is known to stay as it is.
        if let Ok(_no_rotation) = self.shared.rotating.try_lock() {
            match rotate::begin(log, self.shared.limits) {
                Ok(Some(end)) => {
                    self.shared.logs().failing.remove(log);
                    return Ok(end);
                }
                Ok(None) => {}
                Err(error) => self.shared.complain(log, &error),
            }
        }
        self.keep(log);
        Log::at(log).end()
    }

    /// Keeps `log`, which somebody may be writing to already, and looks at it now. Again is fine. Blocking; needs a tokio
    /// runtime.
    pub fn keep(&self, log: &Path) {
        self.open();
        self.shared.look(&[log.to_owned()]);
    }

    /// Begins to listen to the kernel, with the first log.
    fn open(&self) {
        let mut is_first = false;
        self.shared.inotify.get_or_init(|| {
            is_first = true;
            let inotify =
                inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).map_err(io::Error::from);
            let watched = inotify.and_then(process::watch).inspect_err(|error| {
                tracing::warn!(%error, "no inotify instance is left, looking at the logs every minute");
            });
            watched.ok()
        });
        if is_first {
            // Lives as long as the runtime, as the daemon's logs do.
            tokio::spawn(Arc::clone(&self.shared).run());
        }
    }
}

impl Shared {
    fn logs(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(self: Arc<Self>) {
        let mut sweep = tokio::time::interval(UNWATCHED_PACE);
        sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let unwatched: Vec<PathBuf> = self.logs().unwatched.iter().cloned().collect();
            let due = tokio::select! {
                written = self.written() => written,
                _ = sweep.tick(), if !unwatched.is_empty() => unwatched,
                () = self.unwatched.notified() => continue,
            };
            let shared = Arc::clone(&self);
            off_thread(move || shared.look(&due)).await;
        }
    }

    /// Resolves some time after a kept log was written to, with all that were. Cancel-safe: a dropped call has taken nothing
    /// from the kernel.
    async fn written(&self) -> Vec<PathBuf> {
        let Some(Some(inotify)) = self.inotify.get() else { return std::future::pending().await };
        loop {
            let Ok(mut ready) = inotify.readable().await else { return std::future::pending().await };
            // All that is written meanwhile is one look's work.
            tokio::time::sleep(self.pace).await;
            let written = self.take_events(inotify.get_ref());
            ready.clear_ready();
            if !written.is_empty() {
                return written;
            }
        }
    }

    /// The logs whose watch has fired, and is gone with that.
    fn take_events(&self, inotify: &OwnedFd) -> Vec<PathBuf> {
        let mut buffer = [MaybeUninit::uninit(); EVENT_BUFFER];
        let mut events = inotify::Reader::new(inotify, &mut buffer);
        let mut written = Vec::new();
        let mut logs = self.logs();
        loop {
            match events.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    written.extend(logs.watched.drain().map(|(_, path)| path));
                }
                Ok(event) => written.extend(logs.watched.remove(&event.wd())),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return written,
                Err(error) => {
                    tracing::error!(%error, "events of logs cannot be read");
                    return written;
                }
            }
        }
    }

    /// Watches the logs again, then makes room in those that need it: what is written in between is seen by either.
    fn look(&self, paths: &[PathBuf]) {
        for path in paths {
            self.watch(path);
            let made = {
                let _one_at_a_time = self.rotating.lock().unwrap_or_else(PoisonError::into_inner);
                rotate::make_room(path, self.limits)
            };
            match made {
                Ok(()) => {
                    self.logs().failing.remove(path);
                }
                Err(error) => self.complain(path, &error),
            }
        }
    }

    fn watch(&self, path: &Path) {
        // Under the lock: the event must find the log it is about.
        let mut logs = self.logs();
        let interest = WatchFlags::MODIFY | WatchFlags::ONESHOT | WatchFlags::DONT_FOLLOW;
        let watch = match self.inotify.get() {
            Some(Some(inotify)) => inotify::add_watch(inotify.get_ref(), path, interest),
            _ => Err(Errno::MFILE),
        };
        match watch {
            Ok(watch) => {
                logs.watched.insert(watch, path.to_owned());
                logs.unwatched.remove(path);
            }
            // Its cluster was deleted.
            Err(Errno::NOENT | Errno::NOTDIR) => {
                logs.unwatched.remove(path);
                logs.failing.remove(path);
            }
            Err(error) => {
                if logs.unwatched.insert(path.to_owned()) {
                    tracing::warn!(log = %path.display(), %error, "a log cannot be watched, looking at it every minute");
                    self.unwatched.notify_one();
                }
            }
        }
    }

    /// Said once until it works again: the next look may be seconds away.
    fn complain(&self, path: &Path, error: &RotateError) {
        if self.logs().failing.insert(path.to_owned()) {
            tracing::warn!(log = %path.display(), %error, "a log is over its limit and cannot be rotated");
        }
    }
}
