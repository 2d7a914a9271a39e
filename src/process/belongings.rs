//! What belongs to one uid that is a single cluster's: its processes, and what they left outside of its directory.
//!
//! The estate asks who works in a directory before its files change hands, and has everything of a uid ended and removed before
//! somebody else may get that uid.

use super::life::ended_within;
use super::{raw, table};
use procfs::process::Process;
use rustix::event::Timespec;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where anybody may leave files that outlive him.
const COMMON: [&str; 3] = ["/dev/shm", "/tmp", "/var/tmp"];
/// Who forks meanwhile is found by the next look.
const LOOKS: usize = 8;
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Processes whose working directory lies in `dir`: all that a cluster runs works in its own. Blocking: reads one link for each
/// process of the host.
pub fn inside(dir: &Path) -> io::Result<Vec<u32>> {
    let dir = dir.canonicalize()?;
    let works = |pid: &u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(&dir));
    Ok(table::pids()?.into_iter().filter(works).collect())
}

/// Ends every process of `uid`, which is no account's, and removes the files and the shared memory it has in places that are
/// everybody's. Only root may. Blocking.
pub fn leave_nothing_of(uid: u32) -> io::Result<()> {
    end_all(uid)?;
    for dir in COMMON {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let Ok(meta) = entry.path().symlink_metadata() else { continue };
            if meta.uid() != uid {
                continue;
            }
            let removed =
                if meta.is_dir() { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
            removed
                .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
        }
    }
    let segments = crate::files::trusted::text("/proc/sysvipc/shm").unwrap_or_default();
    segments_of(uid, &segments).into_iter().try_for_each(raw::remove_shared_memory)
}

fn end_all(uid: u32) -> io::Result<()> {
    for _ in 0..LOOKS {
        let found: Vec<u32> = table::pids()?.into_iter().filter(|pid| runs_as(*pid, uid)).collect();
        if found.is_empty() {
            return Ok(());
        }
        for pid in found {
            let Some(raw_pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { continue };
            let Ok(pidfd) = pidfd_open(raw_pid, PidfdFlags::empty()) else { continue };
            // Looked at again with the descriptor in hand: now it can mean no other process.
            if runs_as(pid, uid) {
                tracing::warn!(pid, uid, "a process of a deleted cluster is ended");
                let _already_gone = pidfd_send_signal(&pidfd, Signal::KILL);
                ended_within(&pidfd, PATIENCE);
            }
        }
    }
    Err(io::Error::other(format!("processes of uid {uid} outlive SIGKILL, or fork faster than they die")))
}

/// A zombie holds nothing.
fn runs_as(pid: u32, uid: u32) -> bool {
    let status = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok()?.status().ok());
    status.is_some_and(|status| {
        !status.state.starts_with(['Z', 'X']) && [status.ruid, status.euid, status.suid].contains(&uid)
    })
}

/// Ids of the segments `uid` owns, from the text of `/proc/sysvipc/shm`.
fn segments_of(uid: u32, text: &str) -> Vec<i32> {
    let uid = uid.to_string();
    let of = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        (*fields.get(7)? == uid).then(|| fields[1].parse().ok())?
    };
    text.lines().skip(1).filter_map(of).collect()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a sleeper that no host looks after is what is looked for")]
mod tests {
    use super::*;

    #[test]
    fn who_works_in_a_directory_or_below_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let below = dir.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        assert_eq!(inside(dir.path()).unwrap(), [0; 0]);
        let mut sleeper = std::process::Command::new("sleep").arg("600").current_dir(&below).spawn().unwrap();
        assert_eq!(inside(dir.path()).unwrap(), [sleeper.id()]);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert!(inside(Path::new("/no/such")).is_err());
    }

    #[test]
    fn segments_are_told_apart_by_their_owner() {
        let text = "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid      atime      dtime      ctime                   rss                  swap\n\
                    \u{20}    16795          7  1600                    56  2112  2112      6 21001 21001 21001 21001          0          0          0                  4096                     0\n\
                    \u{20}    16796         12  1600                    56  2112  2112      6   101   104   101   104          0          0          0                  4096                     0\n";
        assert_eq!(segments_of(21_001, text), [7]);
        assert_eq!(segments_of(7, text), [0; 0]);
        assert_eq!(segments_of(21_001, "torn\n16795 7\n"), [0; 0]);
    }

    #[test]
    fn all_that_a_uid_has_where_everybody_has_something_goes_with_it() {
        use std::os::unix::process::CommandExt;
        if !rustix::process::geteuid().is_root() {
            return crate::testing::not_exercised(
                "what a uid leaves behind: only root may run something as another",
            );
        }
        let uid = 3_100_000 + std::process::id() % 100_000;
        let name = format!("/dev/shm/berth-test-{uid}");
        let mut sleeper = std::process::Command::new("sleep")
            .arg("600")
            .current_dir("/")
            .uid(uid)
            .gid(uid)
            .spawn()
            .unwrap();
        fs::create_dir(&name).unwrap();
        fs::create_dir(format!("{name}/below")).unwrap();
        std::os::unix::fs::chown(&name, Some(uid), Some(uid)).unwrap();
        leave_nothing_of(uid).unwrap();
        assert!(!Path::new(&name).exists());
        assert!(!sleeper.wait().unwrap().success());
    }
}
