//! All processes of the host at one moment: who is whose child, in which group, and with which marks.
//!
//! Reaping and the survivor search ask it. It takes one read of `/proc` for any number of callers who ask at once, so that
//! stopping a thousand components does not read a thousand times a thousand files.

use super::{identity, mark};
use procfs::process::Process;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// One process that is not a zombie.
#[derive(Debug, Clone, Default)]
pub(super) struct Entry {
    pub(super) pid: u32,
    pub(super) parent: u32,
    pub(super) group: u32,
    pub(super) session: u32,
    pub(super) start_time: u64,
    pub(super) has_terminal: bool,
    pub(super) name: String,
    pub(super) marks: OnceLock<Marks>,
}

/// What only an own read of environ, exe and cwd tells; all empty for a process that may not be looked into.
#[derive(Debug, Clone, Default)]
pub(super) struct Marks {
    pub(super) token: Option<String>,
    pub(super) component: Option<String>,
    pub(super) exe: PathBuf,
    pub(super) cwd: PathBuf,
}

impl Entry {
    pub(super) fn marks(&self) -> &Marks {
        self.marks.get_or_init(|| Marks::read(self.pid).unwrap_or_default())
    }
}

impl Marks {
    pub(super) fn read(pid: u32) -> Option<Self> {
        let process = Process::new(i32::try_from(pid).ok()?).ok()?;
        let environ = environment(&process).unwrap_or_default();
        let variable = |name: &str| Some(environ.get(std::ffi::OsStr::new(name))?.to_str()?.to_owned());
        Some(Self {
            token: variable(mark::TOKEN),
            component: variable(mark::COMPONENT),
            exe: process.exe().unwrap_or_default(),
            cwd: process.cwd().unwrap_or_default(),
        })
    }
}

/// Looks at a process that is between two programs. Each gives way, so that one that waits for this very CPU gets on.
const LOOKS_AT_AN_EXEC: usize = 200;
/// `PF_KTHREAD` of linux/sched.h: it has no environment, ever.
const KERNEL_THREAD: u32 = 0x0020_0000;

/// And at one that is in place and reads empty: its program has overwritten it.
const LOOKS_IN_PLACE: usize = 8;

/// The environment of its program. While the kernel puts a program in place of another, there is none for a moment, or for as
/// long as the CPU is somebody else's; the address where it is to be is 0 then, as in a process that is ending.
fn environment(process: &Process) -> procfs::ProcResult<HashMap<OsString, OsString>> {
    let mut in_place = 0;
    for _ in 0..LOOKS_AT_AN_EXEC {
        let environ = process.environ()?;
        if !environ.is_empty() {
            return Ok(environ);
        }
        let stat = process.stat()?;
        if stat.flags & KERNEL_THREAD != 0 || identity::is_dead(&stat) {
            return Ok(environ);
        }
        if stat.env_start != Some(0) {
            // Put in place since, unless it really is empty. The next program may be on its way already.
            in_place += 1;
            if stat.env_start == stat.env_end || in_place == LOOKS_IN_PLACE {
                return process.environ();
            }
        }
        std::thread::yield_now();
    }
    process.environ()
}

/// A list without stats takes a fraction of a millisecond. On a host where something is always starting, the rest of what
/// is new is left to the next table.
const ROUNDS: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Table(HashMap<u32, Entry>);

impl Table {
    /// Reads `/proc`, and what was started meanwhile, until nobody new is there. Blocking.
    ///
    /// The kernel lists all pids at once; the last of them are looked at milliseconds later. Whoever forks and exits in
    /// that time, again and again, would be gone from each list before its turn and its successor in none.
    pub(super) fn read() -> io::Result<Self> {
        let (mut entries, mut seen) = (HashMap::new(), HashSet::new());
        for round in 0..ROUNDS {
            let new: Vec<u32> = pids()?.into_iter().filter(|pid| seen.insert(*pid)).collect();
            if new.is_empty() {
                break;
            }
            for entry in new.into_iter().filter_map(entry) {
                if round > 0 {
                    // Too short-lived to be asked later.
                    entry.marks();
                }
                entries.insert(entry.pid, entry);
            }
        }
        Ok(Self(entries))
    }

    pub(super) fn get(&self, pid: u32) -> Option<&Entry> {
        self.0.get(&pid)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.0.values()
    }

    /// The process itself, its parent, and so on up. Ends even where reused pids, read at different moments, make a ring.
    pub(super) fn lineage(&self, pid: u32) -> impl Iterator<Item = &Entry> {
        std::iter::successors(self.get(pid), |entry| self.get(entry.parent)).take(self.0.len())
    }
}

impl FromIterator<Entry> for Table {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        Self(entries.into_iter().map(|entry| (entry.pid, entry)).collect())
    }
}

pub(super) fn pids() -> io::Result<Vec<u32>> {
    let names = std::fs::read_dir("/proc")?.map(|entry| entry.map(|entry| entry.file_name()));
    names.filter_map(|name| name.map(|name| name.to_str()?.parse().ok()).transpose()).collect()
}

fn entry(pid: u32) -> Option<Entry> {
    let stat = identity::stat(pid)?;
    if identity::is_dead(&stat) {
        return None;
    }
    let id = |value: i32| u32::try_from(value).unwrap_or_default();
    Some(Entry {
        pid: id(stat.pid),
        parent: id(stat.ppid),
        group: id(stat.pgrp),
        session: id(stat.session),
        start_time: stat.starttime,
        has_terminal: stat.tty_nr != 0,
        name: stat.comm,
        marks: OnceLock::new(),
    })
}

/// Hands out tables that were read after they were asked for.
#[derive(Debug, Default)]
pub(super) struct SharedTable(Mutex<Option<(Instant, Arc<Table>)>>);

impl SharedTable {
    /// A table begun after this call. Whoever waits here while another reads shares the next read. Blocking.
    pub(super) fn fresh(&self) -> io::Result<Arc<Table>> {
        let asked = Instant::now();
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((begun, table)) = latest.as_ref().filter(|(begun, _)| *begun >= asked) {
            tracing::trace!(?begun, "sharing a process table");
            return Ok(Arc::clone(table));
        }
        let begun = Instant::now();
        let table = Arc::new(Table::read()?);
        *latest = Some((begun, Arc::clone(&table)));
        Ok(table)
    }
}

#[cfg(test)]
impl Entry {
    pub(super) fn with_marks(self, marks: Marks) -> Self {
        Self { marks: OnceLock::from(marks), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a bare child, without a host around it")]
    fn a_program_that_does_nothing_but_execute_itself_shows_its_mark_in_every_look() {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "exec /bin/sh -c \"$0\" \"$0\"", "exec /bin/sh -c \"$0\" \"$0\""])
            .env_clear()
            .env(mark::TOKEN, "ours")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let hidden = (0..1000).filter(|_| {
            let marks = Marks::read(child.id()).unwrap();
            marks.token.as_deref() != Some("ours")
        });
        let hidden = hidden.count();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(hidden, 0);
    }
}
