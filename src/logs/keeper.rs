//! Keeps the daemon's logs within their limits while their components write.
//!
//! The process host names each log it spawns into or adopts, and waits for nothing. One inotify instance watches them all,
//! each watch good for one event: a silent component costs nothing, and any number of loud ones wake the daemon twice per
//! [`PACE`]. Looks at logs run off the arbiter, one at a time; no lock is held over one, and one that hangs (a dead disk or
//! network file system) is left to itself after [`PATIENCE`]. It never looks at what is written.

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
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

/// From the first write after a look to the next look. A log may exceed its limit by what is written in this time.
const PACE: Duration = Duration::from_secs(5);
/// From look to look at a log that the kernel has no watch left for (fs.inotify.max_user_watches). The exception, so it
/// may be slow rather than busy.
const UNWATCHED_PACE: Duration = Duration::from_secs(60);
/// A rotation copies some MiB and waits for them to be on disk. What takes longer on a log may hang for ever, and the others
/// shall not wait for it.
const PATIENCE: Duration = Duration::from_secs(20);
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
    patience: Duration,
    /// Opened with the first log, for it needs the runtime; `None` inside when the host is out of instances.
    inotify: OnceLock<Option<AsyncFd<OwnedFd>>>,
    /// Never held over anything that touches a file.
    logs: Mutex<Logs>,
    /// Some log is due.
    due: Notify,
    #[cfg(test)]
    gate: Mutex<Option<(PathBuf, std::sync::mpsc::Receiver<()>)>>,
}

#[derive(Debug, Default)]
struct Logs {
    watched: HashMap<i32, PathBuf>,
    unwatched: BTreeSet<PathBuf>,
    /// To be looked at as soon as possible.
    due: BTreeSet<PathBuf>,
    /// Being looked at: by the sweep of `round`, by one that hangs, or at a birth.
    busy: HashSet<PathBuf>,
    /// The latest sweep's number: an earlier one that goes on after all leaves the rest to it.
    round: u64,
    /// Those whose last rotation failed, which was said.
    failing: HashSet<PathBuf>,
}

impl LogKeeper {
    /// Keeps nothing yet.
    pub fn new(limits: Limits) -> Self {
        Self::paced(limits, PACE, PATIENCE)
    }

    pub(super) fn paced(limits: Limits, pace: Duration, patience: Duration) -> Self {
        let shared = Shared {
            limits,
            pace,
            patience,
            inotify: OnceLock::new(),
            logs: Mutex::default(),
            due: Notify::new(),
            #[cfg(test)]
            gate: Mutex::default(),
        };
        Self { shared: Arc::new(shared) }
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

    /// Whether nothing is due, nor being looked at.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let logs = self.shared.logs();
        logs.due.is_empty() && logs.busy.is_empty()
    }

    /// The next look at `log` hangs until the returned end is dropped.
    #[cfg(test)]
    pub(super) fn hang_at(&self, log: &Path) -> std::sync::mpsc::Sender<()> {
        let (release, gate) = std::sync::mpsc::channel();
        *self.shared.gate.lock().unwrap() = Some((log.to_owned(), gate));
        release
    }

    /// Keeps `log`, which nobody writes to yet; its next writer's output begins at the returned offset. Blocking, on this log
    /// alone; needs a tokio runtime.
    pub fn begin(&self, log: &Path) -> io::Result<u64> {
        self.open();
        self.shared.watch(log);
        if let Some(_claim) = self.shared.claim(log) {
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

    /// Keeps `log`, which somebody may be writing to already, and has it looked at soon. Again is fine. Waits for no file;
    /// needs a tokio runtime.
    pub fn keep(&self, log: &Path) {
        self.open();
        self.shared.logs().due.insert(log.to_owned());
        self.shared.due.notify_one();
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

/// A log that no sweep looks at until this is dropped.
struct Claim<'a> {
    shared: &'a Shared,
    log: &'a Path,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut logs = self.shared.logs();
        logs.busy.remove(self.log);
        if logs.due.contains(self.log) {
            self.shared.due.notify_one();
        }
    }
}

impl Shared {
    fn logs(&self) -> MutexGuard<'_, Logs> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` while a sweep looks at `log`.
    fn claim<'a>(&'a self, log: &'a Path) -> Option<Claim<'a>> {
        self.logs().busy.insert(log.to_owned()).then(|| Claim { shared: self, log })
    }

    async fn run(self: Arc<Self>) {
        let mut minute = tokio::time::interval(UNWATCHED_PACE);
        minute.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut written = pin!(self.written());
        loop {
            let has_unwatched = !self.logs().unwatched.is_empty();
            tokio::select! {
                mut fired = &mut written => {
                    self.take_events(fired.get_inner());
                    fired.clear_ready();
                    written.set(self.written());
                }
                _ = minute.tick(), if has_unwatched => {
                    let mut logs = self.logs();
                    let Logs { due, unwatched, .. } = &mut *logs;
                    due.extend(unwatched.iter().cloned());
                }
                () = self.due.notified() => {}
            }
            let (shared, round) = (Arc::clone(&self), self.logs().round);
            let sweep = off_thread(move || shared.sweep(round));
            if tokio::time::timeout(self.patience, sweep).await.is_err() {
                self.logs().round += 1;
                self.due.notify_one();
            }
        }
    }

    /// Resolves some time after a kept log was written to. Takes nothing from the kernel.
    async fn written(&self) -> AsyncFdReadyGuard<'_, OwnedFd> {
        let Some(Some(inotify)) = self.inotify.get() else { return std::future::pending().await };
        let Ok(fired) = inotify.readable().await else { return std::future::pending().await };
        // All that is written meanwhile is one look's work.
        tokio::time::sleep(self.pace).await;
        fired
    }

    /// The logs whose watch has fired, and is gone with that, are due.
    fn take_events(&self, inotify: &OwnedFd) {
        let mut buffer = [MaybeUninit::uninit(); EVENT_BUFFER];
        let mut events = inotify::Reader::new(inotify, &mut buffer);
        let mut logs = self.logs();
        let Logs { watched, due, .. } = &mut *logs;
        loop {
            match events.next() {
                Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                    due.extend(watched.drain().map(|(_, path)| path));
                }
                Ok(event) => due.extend(watched.remove(&event.wd())),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(error) => {
                    tracing::error!(%error, "events of logs cannot be read");
                    return;
                }
            }
        }
    }

    /// Looks at what is due, one log after the other, until a later sweep has taken over. Blocking.
    fn sweep(&self, round: u64) {
        while let Some(path) = self.next(round) {
            self.look(&path);
            let mut logs = self.logs();
            logs.busy.remove(&path);
            if logs.round != round {
                // An event of the watch that was just set may have been read before it was known whose it is.
                logs.due.insert(path);
                self.due.notify_one();
            }
        }
    }

    fn next(&self, round: u64) -> Option<PathBuf> {
        let mut logs = self.logs();
        if logs.round != round {
            return None;
        }
        let path = logs.due.iter().find(|path| !logs.busy.contains(*path))?.clone();
        logs.due.remove(&path);
        logs.busy.insert(path.clone());
        Some(path)
    }

    /// Watches the log again, then makes room if it needs it: what is written in between is seen by either.
    fn look(&self, path: &Path) {
        #[cfg(test)]
        self.pass_gate(path);
        self.watch(path);
        match rotate::make_room(path, self.limits) {
            Ok(()) => {
                self.logs().failing.remove(path);
            }
            Err(error) => self.complain(path, &error),
        }
    }

    #[cfg(test)]
    fn pass_gate(&self, path: &Path) {
        let gate = self.gate.lock().unwrap().take_if(|(log, _)| log == path);
        if let Some((_, gate)) = gate {
            // Ends when the other end is dropped.
            let _ = gate.recv();
        }
    }

    fn watch(&self, path: &Path) {
        let interest = WatchFlags::MODIFY | WatchFlags::ONESHOT | WatchFlags::DONT_FOLLOW;
        let watch = match self.inotify.get() {
            Some(Some(inotify)) => inotify::add_watch(inotify.get_ref(), path, interest),
            _ => Err(Errno::MFILE),
        };
        let mut logs = self.logs();
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
