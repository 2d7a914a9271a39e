//! Which process a pid means: boot id, pid and start time, and a pidfd that is known to be of that process.
//!
//! The spawner records identities with this, and everyone who is about to signal one checks it here first.

use berth_actors::identity::Identity;
use procfs::Current;
use procfs::process::{Process, Stat};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// This boot's id; empty where /proc does not tell, which still tells apart processes of one boot.
fn boot_id() -> &'static Arc<str> {
    static BOOT_ID: OnceLock<Arc<str>> = OnceLock::new();
    BOOT_ID.get_or_init(|| {
        crate::files::trusted::text("/proc/sys/kernel/random/boot_id")
            .map_or_else(|_| "".into(), |id| id.trim().into())
    })
}

pub(super) fn is_of_this_boot(identity: &Identity) -> bool {
    identity.boot_id == *boot_id()
}

/// The process that has this pid now, zombies included.
pub fn of(pid: u32) -> Option<Identity> {
    Some(Identity { boot_id: Arc::clone(boot_id()), pid, start_time: start_time(pid)? })
}

/// Whether this very process still exists and has not become a zombie.
pub fn is_alive(identity: &Identity) -> bool {
    is_of_this_boot(identity)
        && stat(identity.pid).is_some_and(|stat| stat.starttime == identity.start_time && !is_dead(&stat))
}

/// A process whose first thread has ended shows as a zombie while its other threads run on.
pub(super) fn is_dead(stat: &Stat) -> bool {
    stat.state == 'X' || (stat.state == 'Z' && stat.num_threads <= 1)
}

/// Whether this process is its parent. It must be held by a pidfd, or be a zombie that nobody waits for meanwhile.
pub(super) fn is_child(identity: &Identity) -> bool {
    let own = i32::try_from(std::process::id()).ok();
    stat(identity.pid).is_some_and(|stat| stat.starttime == identity.start_time && Some(stat.ppid) == own)
}

pub(super) fn stat(pid: u32) -> Option<Stat> {
    Process::new(i32::try_from(pid).ok()?).ok()?.stat().ok()
}

fn start_time(pid: u32) -> Option<u64> {
    Some(stat(pid)?.starttime)
}

/// How long ago the process that has this pid now was started.
pub fn age_of(pid: u32) -> Option<Duration> {
    let started = Duration::from_millis(start_time(pid)? * 1000 / procfs::ticks_per_second());
    let up = procfs::Uptime::current().ok()?.uptime_duration();
    Some(up.saturating_sub(started))
}

/// A pidfd of exactly this process; `None` when it is gone.
///
/// The descriptor is opened first and the start time read after it. Were the pid reused before the open, the start time
/// would differ; reused after it, the descriptor would be of a process that started earlier than the one recorded, which
/// had to exist before its identity could be written down.
pub(super) fn open(identity: &Identity) -> io::Result<Option<OwnedFd>> {
    if !is_of_this_boot(identity) {
        return Ok(None);
    }
    let Some(pid) = raw_pid(identity.pid) else { return Ok(None) };
    match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => Ok((start_time(identity.pid) == Some(identity.start_time)).then_some(pidfd)),
        Err(Errno::SRCH | Errno::INVAL) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn raw_pid(pid: u32) -> Option<Pid> {
    i32::try_from(pid).ok().and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_age_of_this_process_is_short_and_that_of_nobody_unknown() {
        assert!(age_of(std::process::id()).unwrap() < Duration::from_hours(24));
        assert_eq!(age_of(u32::MAX), None);
    }

    #[test]
    fn an_identity_of_another_boot_or_another_start_names_no_living_process() {
        let me = of(std::process::id()).unwrap();
        assert!(is_alive(&me) && open(&me).unwrap().is_some());
        for stale in [
            Identity { boot_id: "another boot".into(), ..me.clone() },
            Identity { start_time: me.start_time + 1, ..me.clone() },
            Identity { pid: u32::MAX, ..me },
        ] {
            assert!(!is_alive(&stale) && open(&stale).unwrap().is_none(), "{stale:?}");
        }
    }
}
