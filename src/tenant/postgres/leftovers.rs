//! What a postmaster that was killed leaves behind, and when it may be ignored, removed or killed.
//!
//! A stale `postmaster.pid` stops the next start if its pid is alive again as anything of the same account. It is kept
//! nevertheless: it also names the shared memory that orphaned backends may still write to. So first prove that no
//! postmaster of this data directory lives, end orphans, and then tell postgres to overlook the pid.

use super::super::defaults;
use super::super::seat::Seat;
use crate::files;
use crate::process;
use berth_actors::host::PrepareError;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// The lock file of a postmaster that no longer lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tenant) enum Lock {
    None,
    /// Overlook this pid.
    Stale(i32),
}

#[derive(Debug, PartialEq, Eq)]
pub(in crate::tenant) enum Verdict {
    Start(Lock),
    /// The lock file says nothing; nobody lives, so nothing is lost with it.
    RemoveLock,
    /// Someone else runs this cluster right now.
    Occupied(i32),
    /// Backends without their postmaster.
    Orphans(Vec<i32>),
}

/// `lock`: text of postmaster.pid. `holders`: live postgres processes that work in the data directory.
pub(in crate::tenant) fn judge(lock: Option<&str>, holders: &[i32]) -> Verdict {
    // A single-user postgres writes its pid negated.
    let pid = lock.and_then(|text| text.lines().next()?.trim().parse().ok()).and_then(i32::checked_abs);
    match (lock, pid) {
        (_, Some(pid)) if holders.contains(&pid) => Verdict::Occupied(pid),
        _ if !holders.is_empty() => Verdict::Orphans(holders.to_vec()),
        (None, _) => Verdict::Start(Lock::None),
        (Some(_), Some(pid)) => Verdict::Start(Lock::Stale(pid)),
        (Some(_), None) => Verdict::RemoveLock,
    }
}

/// Makes the data directory startable. Kills only backends of this directory whose postmaster is gone.
pub(super) async fn clear(seat: &Seat, data: &Path, socket_lock: &Path) -> Result<Lock, PrepareError> {
    let pid_file = data.join("postmaster.pid");
    if !pid_file.exists() && !socket_lock.exists() {
        return Ok(Lock::None);
    }
    let mut killed = false;
    loop {
        let (dir, file) = (data.to_owned(), pid_file.clone());
        let verdict = seat.blocking(move || inspect(&dir, &file)).await?;
        match verdict {
            Verdict::Start(lock) => {
                // The socket's own lock guards nothing once the directory is known to be free.
                seat.blocking({
                    let path = socket_lock.to_owned();
                    move || remove(&path)
                })
                .await?;
                return Ok(lock);
            }
            Verdict::RemoveLock => {
                let path = pid_file.clone();
                seat.blocking(move || remove(&path)).await?;
            }
            Verdict::Occupied(pid) => {
                let dir = data.display();
                return Err(seat.retry(format!("postmaster {pid} already runs on {dir}: stop it first")));
            }
            Verdict::Orphans(pids) if killed => {
                let dir = data.display();
                return Err(seat.retry(format!("backends {pids:?} still hold {dir} after SIGKILL")));
            }
            Verdict::Orphans(pids) => {
                end(seat, data, pids).await?;
                killed = true;
            }
        }
    }
}

fn inspect(data: &Path, pid_file: &Path) -> io::Result<Verdict> {
    let lock = files::read_optional(pid_file)?;
    let lock = lock.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let data = data.canonicalize()?;
    let mut holders = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        holders.extend(pid.filter(|&pid| holds(pid, &data)));
    }
    Ok(judge(lock.as_deref(), &holders))
}

/// Postmaster and backends all work in the data directory; so may an operator's shell, which is none of our business.
fn holds(pid: i32, data: &Path) -> bool {
    let proc = PathBuf::from(format!("/proc/{pid}"));
    std::fs::read_link(proc.join("cwd")).is_ok_and(|cwd| cwd == data)
        && crate::files::trusted::text(proc.join("comm")).is_ok_and(|comm| comm.trim_end() == "postgres")
}

/// Waits for orphans to notice that their postmaster is gone, then kills them, each by a pidfd that was checked.
async fn end(seat: &Seat, data: &Path, pids: Vec<i32>) -> Result<(), PrepareError> {
    let data = data.to_owned();
    let open = move || -> io::Result<Vec<OwnedFd>> {
        let held = pids.into_iter().filter_map(|pid| {
            let fd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::NONBLOCK).ok()?;
            holds(pid, &data).then_some(fd) // checked after the open: now the fd can mean no other process
        });
        Ok(held.collect())
    };
    let mut orphans = Vec::new();
    for fd in seat.blocking(open).await? {
        orphans.push(process::watch(fd).map_err(|error| seat.retry(error))?);
    }
    if gone(&orphans, defaults::ORPHAN_GRACE).await {
        return Ok(());
    }
    for orphan in &orphans {
        let _already_gone = pidfd_send_signal(orphan.get_ref(), Signal::KILL);
    }
    gone(&orphans, defaults::ORPHAN_DEADLINE).await;
    Ok(())
}

/// A pidfd is readable once its process has ended.
async fn gone(processes: &[AsyncFd<OwnedFd>], deadline: Duration) -> bool {
    let all = futures::future::join_all(processes.iter().map(AsyncFd::readable));
    tokio::time::timeout(deadline, all).await.is_ok()
}

fn remove(path: &Path) -> io::Result<()> {
    Ok(files::remove(path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_pid_is_overlooked_only_when_no_postgres_works_in_the_directory() {
        assert_eq!(judge(None, &[]), Verdict::Start(Lock::None));
        assert_eq!(judge(Some("4711\n/s/demo/pg\n"), &[]), Verdict::Start(Lock::Stale(4711)));
        assert_eq!(judge(Some("-4711\n"), &[]), Verdict::Start(Lock::Stale(4711)));
        assert_eq!(judge(Some("4711\n/s/demo/pg\n"), &[4711, 4712]), Verdict::Occupied(4711));
        assert_eq!(judge(Some("4711\n/s/demo/pg\n"), &[4712]), Verdict::Orphans(vec![4712]));
        assert_eq!(judge(None, &[4712]), Verdict::Orphans(vec![4712]));
    }

    #[test]
    fn an_empty_or_garbled_lock_of_nobody_is_removed() {
        assert_eq!(judge(Some(""), &[]), Verdict::RemoveLock);
        assert_eq!(judge(Some("\u{0}\u{0}"), &[]), Verdict::RemoveLock);
        assert_eq!(judge(Some(""), &[4712]), Verdict::Orphans(vec![4712]));
    }

    #[test]
    fn a_process_of_another_name_in_the_directory_is_no_holder() {
        let here = std::env::current_dir().unwrap();
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!holds(own, &here));
    }
}
