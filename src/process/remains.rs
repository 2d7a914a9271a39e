//! Which processes belong to one component's life, by everything a process cannot easily shed.
//!
//! Pure: decides on a [`Table`], kills nothing. Called by the host's reap and by the survivor search.
//!
//! A descendant is found by its parents, a member of the session or group by its numbers, a daemonized one by the token in
//! its environment. A postgres backend escapes all three once its postmaster is dead: it has its own session, its parent
//! is whoever reaps orphans, and its title overwrote its environment. It still runs the same executable in the
//! component's directory.

use super::identity;
use super::ledger::Record;
use super::reap::Targets;
use super::table::{Entry, Table};
use std::collections::HashSet;
use std::io;
use std::ops::Deref;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The living processes of `record`. Never among them: a process under one of the `others` (main processes of other
/// components, and tools), this daemon, and its ancestors.
pub(super) fn of<'a>(record: &Record, table: &'a Table, others: &HashSet<u32>) -> Vec<&'a Entry> {
    if record.identity().is_some_and(|leader| !identity::is_of_this_boot(leader)) {
        // Its pid, start time and group number mean someone else now.
        return Vec::new();
    }
    let ourselves = ourselves(table);
    table
        .iter()
        .filter(|entry| !ourselves.contains(&entry.pid) && belongs(record, table, others, entry))
        .collect()
}

/// Looks that may end without a verdict on an orphan. A program that does nothing but execute itself shows no environment in
/// 5 of 100 looks; three of them pass it by once in ten thousand. Each takes a few milliseconds.
const LOOKS: usize = 3;

/// The living processes of `record`, from as many tables as it takes to be sure that there is none. `fresh` reads one.
///
/// A process shows no environment while it executes a program, and none any more when it has ended since it was listed. If
/// it is the daemon's by then, because whoever started it is gone, nothing else tells either: such a look decides nothing.
pub(super) fn search<T: Deref<Target = Table>>(
    record: &Record,
    others: &HashSet<u32>,
    mut fresh: impl FnMut() -> io::Result<T>,
) -> io::Result<Targets> {
    let mut left_open = Vec::new();
    for _ in 0..LOOKS {
        let table = fresh()?;
        let found = of(record, &table, others);
        if !found.is_empty() {
            return Ok(found.into_iter().map(|entry| (entry.into(), entry.name.clone())).collect());
        }
        left_open = undecided(record, &table, others).map(|entry| entry.pid).collect();
        if left_open.is_empty() {
            return Ok(Targets::new());
        }
    }
    tracing::warn!(component = %record.component, pids = ?left_open, "orphans carry no mark of the component that started them: they are left running");
    Ok(Targets::new())
}

/// Orphans that the daemon inherited from one of its components, and what they started, as far as no mark tells of which.
fn undecided<'a>(
    record: &Record,
    table: &'a Table,
    others: &'a HashSet<u32>,
) -> impl Iterator<Item = &'a Entry> {
    let me = std::process::id();
    // Whoever shares the daemon's session was started by a library of its own.
    let session = table.get(me).map(|daemon| daemon.session);
    let since = record.identity().map_or(0, |leader| leader.start_time);
    table.iter().filter(move |entry| {
        entry.pid != me
            && entry.start_time >= since
            && Some(entry.session) != session
            && entry.marks().token.is_none()
            && !table.lineage(entry.pid).any(|relative| others.contains(&relative.pid))
            && table.lineage(entry.pid).any(|relative| relative.parent == me)
    })
}

/// This daemon and its ancestors: never to be killed, though one may be a shell that was started by a component.
pub(super) fn ourselves(table: &Table) -> HashSet<u32> {
    table.lineage(std::process::id()).map(|entry| entry.pid).collect()
}

fn belongs(record: &Record, table: &Table, others: &HashSet<u32>, entry: &Entry) -> bool {
    let leader = record.identity();
    if leader.is_some_and(|leader| entry.start_time < leader.start_time) {
        return false;
    }
    for relative in table.lineage(entry.pid) {
        if leader.is_some_and(|leader| relative.pid == leader.pid && relative.start_time == leader.start_time)
        {
            return true;
        }
        if others.contains(&relative.pid) {
            return false;
        }
    }
    leader.is_some_and(|leader| {
        // The leader's pid names its group and session for as long as it was not given to a new process.
        let reused = table.get(leader.pid).is_some_and(|holder| holder.start_time != leader.start_time);
        !reused && (entry.group == leader.pid || entry.session == leader.pid)
    }) || is_marked(record, entry)
}

/// Whether the process says itself that it is of this life: by its token, or, without an environment to read, by what it
/// runs and where.
pub(super) fn is_marked(record: &Record, entry: &Entry) -> bool {
    let marks = entry.marks();
    match &marks.token {
        Some(token) => *token == record.token,
        // A terminal means an operator's shell that happens to stand there.
        None => {
            !entry.has_terminal
                && without_deleted(&marks.exe) == record.program
                && record.dir.as_ref().is_some_and(|dir| marks.cwd.starts_with(dir))
        }
    }
}

/// The kernel's link to an executable that was replaced or removed ends in a note.
pub(super) fn without_deleted(exe: &Path) -> &Path {
    let bytes = exe.as_os_str().as_bytes();
    bytes.strip_suffix(b" (deleted)").map_or(exe, |path| Path::new(std::ffi::OsStr::from_bytes(path)))
}

#[cfg(test)]
mod tests {
    use super::super::ledger::Phase;
    use super::super::table::Marks;
    use super::*;
    use berth_actors::identity::{ComponentId, Identity};

    fn record() -> Record {
        Record {
            component: ComponentId::new("demo", "postgres"),
            token: "ours".into(),
            program: "/opt/pg/bin/postgres".into(),
            dir: Some("/state/clusters/demo".into()),
            cgroup: None,
            digest: String::new(),
            log: "/log".into(),
            log_offset: 0,
            address: None,
            previous: None,
            phase: Phase::Running(Identity { pid: 100, start_time: 1000, ..this_process() }),
        }
    }

    fn this_process() -> Identity {
        identity::of(std::process::id()).unwrap()
    }

    fn entry(pid: u32, parent: u32, start_time: u64) -> Entry {
        Entry { pid, parent, group: pid, session: pid, start_time, ..Entry::default() }
            .with_marks(Marks::default())
    }

    fn backend(exe: &str, cwd: &str) -> Marks {
        Marks { exe: exe.into(), cwd: cwd.into(), ..Marks::default() }
    }

    fn found(entries: impl IntoIterator<Item = Entry>, others: &[u32]) -> Vec<u32> {
        let table: Table = entries.into_iter().collect();
        let others = others.iter().copied().collect();
        let mut pids: Vec<u32> = of(&record(), &table, &others).iter().map(|entry| entry.pid).collect();
        pids.sort_unstable();
        pids
    }

    #[test]
    fn descendants_belong_however_deep_and_in_whatever_session() {
        assert_eq!(
            found([entry(100, 1, 1000), entry(101, 100, 1001), entry(102, 101, 1002)], &[]),
            [100, 101, 102]
        );
    }

    #[test]
    fn a_group_outlives_its_leader_but_not_the_reuse_of_its_pid() {
        let member = || Entry { group: 100, session: 100, ..entry(101, 1, 1001) };
        assert_eq!(found([member()], &[]), [101]);
        assert_eq!(found([member(), entry(100, 1, 5000)], &[]), [0; 0]);
    }

    #[test]
    fn a_record_of_an_earlier_boot_names_nobody() {
        let leader = Identity { boot_id: "earlier".into(), pid: 100, start_time: 1000 };
        let record = Record { phase: Phase::Running(leader), ..record() };
        let table: Table = [entry(100, 1, 1000), entry(101, 100, 1001)].into_iter().collect();
        assert_eq!(of(&record, &table, &HashSet::new()).len(), 0);
    }

    #[test]
    fn a_daemonized_process_is_known_by_its_token_alone() {
        let with_token = |token: &str| {
            entry(300, 1, 1001).with_marks(Marks { token: Some(token.into()), ..Marks::default() })
        };
        assert_eq!(found([with_token("ours")], &[]), [300]);
        assert_eq!(found([with_token("another life's")], &[]), [0; 0]);
    }

    #[test]
    fn an_orphaned_backend_is_known_by_executable_and_directory() {
        let orphan = |exe, cwd| entry(300, 1, 1001).with_marks(backend(exe, cwd));
        assert_eq!(found([orphan("/opt/pg/bin/postgres", "/state/clusters/demo/pg")], &[]), [300]);
        assert_eq!(found([orphan("/opt/pg/bin/postgres (deleted)", "/state/clusters/demo")], &[]), [300]);
        assert_eq!(found([orphan("/opt/pg/bin/postgres", "/state/clusters/demo2")], &[]), [0; 0]);
        assert_eq!(found([orphan("/usr/bin/tail", "/state/clusters/demo")], &[]), [0; 0]);
    }

    #[test]
    fn nothing_under_another_components_main_process_belongs() {
        let theirs = entry(200, 1, 1001);
        let backend =
            entry(201, 200, 1002).with_marks(backend("/opt/pg/bin/postgres", "/state/clusters/demo"));
        assert_eq!(found([theirs, backend], &[200]), [0; 0]);
    }

    #[test]
    fn an_operators_shell_and_an_older_process_are_spared() {
        let here = || backend("/opt/pg/bin/postgres", "/state/clusters/demo");
        let shell = Entry { has_terminal: true, ..entry(300, 1, 1001).with_marks(here()) };
        assert_eq!(found([shell, entry(301, 1, 999).with_marks(here())], &[]), [0; 0]);
    }

    #[test]
    fn the_daemon_and_its_ancestors_never_belong() {
        let me = std::process::id();
        let token = || Marks { token: Some("ours".into()), ..Marks::default() };
        let parent = 4_000_000;
        let entries =
            [entry(me, parent, 2000).with_marks(token()), entry(parent, 1, 1500).with_marks(token())];
        assert_eq!(found(entries, &[]), [0; 0]);
    }

    /// As the daemon's, because whoever started it is gone.
    fn orphan(marks: Marks) -> Entry {
        entry(300, std::process::id(), 1001).with_marks(marks)
    }

    fn searched(tables: &[fn() -> Entry]) -> (Vec<u32>, usize) {
        let mut looks = 0;
        let found = search(&record(), &HashSet::new(), || {
            let table: Table = [tables[looks.min(tables.len() - 1)]()].into_iter().collect();
            looks += 1;
            Ok(Box::new(table))
        });
        (found.unwrap().into_keys().map(|target| target.pid).collect(), looks)
    }

    #[test]
    fn an_orphan_between_two_programs_is_looked_at_again() {
        let executing = || orphan(Marks::default());
        let ours = || orphan(Marks { token: Some("ours".into()), ..Marks::default() });
        let theirs = || orphan(Marks { token: Some("another's".into()), ..Marks::default() });
        assert_eq!(searched(&[executing, ours]), (vec![300], 2));
        assert_eq!(searched(&[executing, theirs]), (vec![], 2));
        assert_eq!(searched(&[executing]), (vec![], LOOKS), "it may stay as it is");
    }

    #[test]
    fn one_look_is_enough_when_every_orphan_is_known() {
        let theirs = || orphan(Marks { token: Some("another's".into()), ..Marks::default() });
        let strangers = || entry(300, std::process::id() + 1, 1001);
        assert_eq!((searched(&[theirs]).1, searched(&[strangers]).1), (1, 1));
    }
}
