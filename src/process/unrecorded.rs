//! A process whose daemon did not live to write its pid down, or had no room to: found again by the token of its intent.
//!
//! Adoption calls [`complete`] for each record that is still an intent. Only the leader of a session that runs the recorded
//! program can be what the spawner made; a worker it started since is not.

use super::identity;
use super::ledger::{Phase, Record};
use super::mark::StateMark;
use super::remains;
use super::table::{Entry, Table};
use procfs::process::Process;
use std::path::Path;

/// The record with its process, if exactly one answers to it. Blocking.
pub(super) fn complete(record: Record, table: &Table, mark: &StateMark) -> Record {
    if record.phase != Phase::Intent {
        return record;
    }
    let leaders: Vec<&Entry> = table.iter().filter(|entry| is_leader(&record, entry, table, mark)).collect();
    let [leader] = leaders[..] else { return record };
    let of_this_start =
        |identity: &berth_actors::identity::Identity| identity.start_time == leader.start_time;
    let Some(identity) = identity::of(leader.pid).filter(of_this_start) else { return record };
    // The kernel may have refused its birth in the cgroup that was made for it.
    let cgroup = record.cgroup.filter(|dir| is_in(dir, leader.pid));
    Record { phase: Phase::Running(identity), cgroup, ..record }
}

fn is_leader(record: &Record, entry: &Entry, table: &Table, mark: &StateMark) -> bool {
    let has_token = |entry: &Entry| entry.marks().token.as_ref() == Some(&record.token);
    entry.session == entry.pid
        && has_token(entry)
        && entry.marks().component.as_deref().and_then(|component| mark.parse(component)).as_ref()
            == Some(&record.component)
        && remains::without_deleted(&entry.marks().exe) == record.program
        && !table.get(entry.parent).is_some_and(has_token)
}

fn is_in(cgroup: &Path, pid: u32) -> bool {
    let of = i32::try_from(pid).ok().and_then(|pid| Process::new(pid).ok()?.cgroups().ok());
    // The unified hierarchy alone has the number 0; a path of nothing would end every path.
    let ends = |pathname: &str| !pathname.is_empty() && cgroup.ends_with(pathname);
    of.is_some_and(|of| of.0.iter().any(|of| of.hierarchy == 0 && ends(of.pathname.trim_start_matches('/'))))
}
