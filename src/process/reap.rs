//! SIGKILL until nothing is left.
//!
//! Called by the host and the survivor search, on a blocking thread. A process may fork between being listed and being
//! killed, so killing ends with looks that find nobody, never with a count.

use super::table::Entry;
use super::{identity, life};
use berth_actors::identity::Identity;
use rustix::event::Timespec;
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// SIGKILL takes milliseconds; what outlives this hangs in the kernel (a dead disk or network file system).
pub(super) const DEADLINE: Duration = Duration::from_secs(5);

/// Looks in a row that must find nobody once somebody was found. Who forks while it is killed may be between two programs
/// at the moment of one look, and shows no mark then.
const LOOKS: u32 = 3;

/// The processes to kill: name by identity.
pub(super) type Targets = BTreeMap<Target, String>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Target {
    pub(super) pid: u32,
    pub(super) start_time: u64,
}

impl From<&Identity> for Target {
    fn from(identity: &Identity) -> Self {
        Self { pid: identity.pid, start_time: identity.start_time }
    }
}

impl From<&Entry> for Target {
    fn from(entry: &Entry) -> Self {
        Self { pid: entry.pid, start_time: entry.start_time }
    }
}

#[derive(Debug, thiserror::Error)]
pub(super) enum ReapError {
    #[error("cannot look for what is left: {0}")]
    Look(#[from] io::Error),
    #[error("still alive {}s after SIGKILL: {}", .after.as_secs(), Names(.left))]
    Left { after: Duration, left: Targets },
}

/// Kills what `find` finds, until it finds nothing; returns everything that was killed.
pub(super) fn kill_all(
    deadline: Duration,
    mut find: impl FnMut() -> io::Result<Targets>,
) -> Result<Targets, ReapError> {
    let end = Instant::now() + deadline;
    let mut killed = Targets::new();
    let mut empty = 0;
    loop {
        let left = find()?;
        if left.is_empty() {
            empty += 1;
            if killed.is_empty() || empty == LOOKS {
                return Ok(killed);
            }
            continue;
        }
        empty = 0;
        if Instant::now() >= end {
            return Err(ReapError::Left { after: deadline, left });
        }
        let mut dying = Vec::new();
        for (target, name) in left {
            if let Some(pidfd) = open(&target)? {
                // A failure shows as a process that is left.
                let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                dying.push(pidfd);
                killed.insert(target, name);
            }
        }
        for pidfd in dying {
            let patience = end.saturating_duration_since(Instant::now());
            life::ended_within(&pidfd, timespec(patience));
        }
    }
}

/// A pidfd of exactly this process; `None` when it is gone.
pub(super) fn open(target: &Target) -> io::Result<Option<rustix::fd::OwnedFd>> {
    let Some(now) = identity::of(target.pid) else { return Ok(None) };
    identity::open(&Identity { start_time: target.start_time, ..now })
}

pub(super) fn timespec(duration: Duration) -> Timespec {
    Timespec::try_from(duration).unwrap_or_default()
}

struct Names<'a>(&'a Targets);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (target, name)) in self.0.iter().enumerate() {
            let separator = if position == 0 { "" } else { ", " };
            write!(f, "{separator}{name} (pid {})", target.pid)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_killed_is_named() {
        let stubborn = || Targets::from([(Target { pid: u32::MAX, start_time: 1 }, "postgres".to_owned())]);
        let error = kill_all(Duration::ZERO, || Ok(stubborn())).unwrap_err();
        assert_eq!(error.to_string(), "still alive 0s after SIGKILL: postgres (pid 4294967295)");
    }
}
