//! The daemon as the reaper of what its children leave behind.
//!
//! `main` calls [`adopt`] once. As a child subreaper the daemon becomes the parent of every orphan below it, so that a
//! double fork cannot hide from it, and it collects their zombies. It never takes the exit status of a process that someone
//! else waits for.

use super::{children, identity, raw};
use procfs::process::Process;
use rustix::process::{WaitOptions, child_subreaper, getpid, set_child_subreaper, waitpid};
use std::fs;
use std::io;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};

/// A birth takes a millisecond; a zombie that stays for a few more disturbs nobody.
const AFTER_A_BIRTH: Duration = Duration::from_millis(20);

/// From a SIGCHLD to the look for orphans: a restart and the next thousand deaths come first.
const AFTER_A_DEATH: Duration = Duration::from_millis(100);

/// Makes this process the subreaper, closes inherited descriptors to its children, and collects orphaned zombies on each
/// SIGCHLD from now on. Call once, in the runtime, after the host was made: it knows the
/// survivors, whose statuses are not to be taken.
pub fn adopt() -> io::Result<()> {
    become_subreaper()?;
    raw::seal_memory();
    raw::seal_inherited_descriptors()?;
    let mut child_ended = signal(SignalKind::child())?;
    tokio::spawn(async move {
        while child_ended.recv().await.is_some() {
            // Most deaths are of children somebody else waits for, and many come together.
            tokio::time::sleep(AFTER_A_DEATH).await;
            if none() {
                continue;
            }
            while matches!(tokio::task::spawn_blocking(collect).await, Ok(None)) {
                tokio::time::sleep(AFTER_A_BIRTH).await;
            }
        }
    });
    Ok(())
}

/// Whether this process has no child but those that are registered, dead or alive. Reads a few lines from the kernel's memory
/// and never waits: false where it cannot be told at once.
///
/// What a dead process leaves behind becomes a child of the nearest subreaper above it before its death is told to anyone.
/// So where this holds, a child of this process that was seen dead has left nobody.
pub(super) fn none() -> bool {
    child_subreaper().is_ok_and(|is_subreaper| is_subreaper.is_some()) && children::all_known(list_children)
}

/// `None` on a kernel without CONFIG_PROC_CHILDREN. Orphans, and the children of a thread that ended, are the first thread's:
/// it is read last, so that none moves there unseen.
fn list_children() -> Option<Vec<u32>> {
    let first = std::process::id();
    let of = |thread: u32| crate::files::trusted::text(format!("/proc/self/task/{thread}/children"));
    let mut all = String::new();
    for entry in fs::read_dir("/proc/self/task").ok()? {
        let thread = entry.ok()?.file_name().to_str()?.parse().ok()?;
        match of(thread) {
            Ok(children) if thread != first => all.push_str(&children),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return None,
            // It has just ended.
            _ => {}
        }
    }
    all.push_str(&of(first).ok()?);
    all.split_whitespace().map(|pid| pid.parse().ok()).collect()
}

pub(super) fn become_subreaper() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Waits for every zombie child that nobody else waits for; returns their pids, or `None` while a child is being born and
/// cannot be told from an orphan. Blocking.
///
/// Everything Berth starts has a session of its own, so a zombie of the daemon's session was started by a library, which
/// wants its status itself. In a pid namespace the daemon's own session may be one begun outside, which the kernel calls 0
/// (and `rustix::process::getsid` panics at): it is told from procfs, and 0 is a session like any other.
pub(super) fn collect() -> Option<Vec<u32>> {
    let Some(session) = identity::stat(std::process::id()).map(|own| own.session) else {
        return Some(Vec::new());
    };
    children::unless_one_is_born(|is_known| {
        own_children()
            .into_iter()
            .filter(|pid| !is_known(*pid) && is_zombie_outside(*pid, session) && wait_for(*pid))
            .collect()
    })
}

fn is_zombie_outside(pid: u32, session: i32) -> bool {
    identity::stat(pid).is_some_and(|stat| identity::is_dead(&stat) && stat.session != session)
}

fn wait_for(pid: u32) -> bool {
    matches!(waitpid(identity::raw_pid(pid), WaitOptions::NOHANG), Ok(Some(_)))
}

/// The children of all threads. The kernel may omit one that moves from an ending thread to another meanwhile; the next
/// SIGCHLD finds it.
fn own_children() -> Vec<u32> {
    let Ok(tasks) = Process::myself().and_then(|me| me.tasks()) else { return Vec::new() };
    let lists: Vec<_> = tasks.flatten().filter_map(|task| task.children().ok()).collect();
    if lists.is_empty() {
        return children_by_parent();
    }
    lists.concat()
}

/// For a kernel built without CONFIG_PROC_CHILDREN.
fn children_by_parent() -> Vec<u32> {
    let me = getpid().as_raw_nonzero().get();
    let Ok(processes) = procfs::process::all_processes() else { return Vec::new() };
    processes
        .filter_map(|process| process.ok()?.stat().ok())
        .filter(|stat| stat.ppid == me)
        .filter_map(|stat| u32::try_from(stat.pid).ok())
        .collect()
}
