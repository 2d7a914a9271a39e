//! The code between fork and exec, and whatever else the compiler cannot check: the only unsafe code of the program.
//!
//! Called by the spawner, tools and the watcher of lives. What runs in the forked child is system calls alone: another
//! thread of the daemon may have held the allocator's lock, or any other, at the moment of the fork.
#![allow(unsafe_code)]

use berth_actors::spec::User;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::Mode;
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::process::{Gid, Uid};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// What the child does to itself before it executes its program.
#[derive(Debug, Default)]
pub(super) struct Birth {
    /// An open `cgroup.procs`. A refused move is no failure: the reaper finds the process without it.
    pub(super) cgroup: Option<OwnedFd>,
    pub(super) user: Option<User>,
    /// SIGKILL when the thread that spawned it ends. Only for a child whose spawner waits for it.
    pub(super) dies_with_parent: bool,
}

/// Arms `command`: a new session, its cgroup, umask 077, its user, and no way to gain privileges.
pub(super) fn arm(command: &mut Command, birth: Birth) {
    let inside = move || {
        rustix::process::setsid()?;
        if let Some(procs) = &birth.cgroup {
            // "0" is the process that writes it.
            let _ = rustix::io::write(procs, b"0");
        }
        rustix::process::umask(Mode::RWXG | Mode::RWXO);
        if let Some(user) = birth.user {
            become_user(user)?;
        }
        rustix::thread::set_no_new_privs(true)?;
        if birth.dies_with_parent {
            // After the change of user, which clears it.
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        }
        Ok(())
    };
    // SAFETY: the closure runs in the forked child. It makes system calls, allocates nothing and takes no lock; what it
    // captured was built before the fork and is only read; its errors are plain errno values.
    unsafe { command.pre_exec(inside) };
}

/// The child has one thread, so the thread's credentials are the process's. Groups go first: the right to change them
/// goes with the uid.
fn become_user(user: User) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    Ok(())
}

/// Keeps descriptors the daemon was started with (socket activation, a careless shell) out of its children. Everything
/// opened later is close-on-exec from birth. Call before other threads run.
pub(super) fn seal_inherited_descriptors() -> io::Result<()> {
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    for fd in open {
        // SAFETY: the number is used for two fcntl calls and nothing else. Should it have been closed since the listing,
        // they fail; should it have been reopened, the new descriptor is close-on-exec already.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) };
        if let Ok(flags) = fcntl_getfd(fd.as_fd()) {
            let _ = fcntl_setfd(fd, flags | FdFlags::CLOEXEC);
        }
    }
    Ok(())
}

/// Registers a pidfd with the runtime.
pub(super) fn watch(pidfd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an OwnedFd names one open descriptor until it is dropped. The AsyncFd owns it from here on, deregisters it
    // before dropping it, and nobody in this crate takes it out or exchanges it.
    Ok(unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?)
}
