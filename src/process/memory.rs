//! How much memory components hold: one look at `/proc` for all of them, only when somebody asks.

use super::{identity, table};
use std::collections::HashMap;

/// What a component's main process and its descendants hold together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Bytes. A page that several of them share counts for each.
    pub resident: u64,
    pub processes: u64,
}

/// For each main process that is alive. Blocking: reads one file for each process of the host.
pub fn held_by(mains: &[u32]) -> HashMap<u32, Held> {
    let stats = table::pids().unwrap_or_default().into_iter().filter_map(|pid| {
        let stat = identity::stat(pid)?;
        let parent = u32::try_from(stat.ppid).unwrap_or_default();
        (!identity::is_dead(&stat))
            .then_some((pid, Seen { parent, resident: stat.rss * procfs::page_size() }))
    });
    sum(mains, &stats.collect())
}

#[derive(Debug, Clone, Copy)]
struct Seen {
    parent: u32,
    resident: u64,
}

fn sum(mains: &[u32], seen: &HashMap<u32, Seen>) -> HashMap<u32, Held> {
    let mut held: HashMap<u32, Held> =
        mains.iter().filter(|pid| seen.contains_key(pid)).map(|pid| (*pid, Held::default())).collect();
    for (pid, process) in seen {
        let up = |pid: &u32| seen.get(pid).map(|process| process.parent);
        // A ring can only be made of pids that were reused while they were read.
        let lineage = std::iter::successors(Some(*pid), up).take(seen.len());
        if let Some(main) = lineage.into_iter().find(|pid| held.contains_key(pid)) {
            let of = held.entry(main).or_default();
            of.resident += process.resident;
            of.processes += 1;
        }
    }
    held
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_count_for_the_nearest_component_and_strangers_for_none() {
        let seen = [(1, 0), (10, 1), (11, 10), (12, 11), (20, 10), (21, 20), (30, 1), (40, 41), (41, 40)];
        let seen = seen.map(|(pid, parent)| (pid, Seen { parent, resident: u64::from(pid) })).into();
        let held = sum(&[10, 20, 99], &seen);
        assert_eq!(held[&10], Held { resident: 10 + 11 + 12, processes: 3 });
        assert_eq!(held[&20], Held { resident: 20 + 21, processes: 2 });
        assert_eq!(held.len(), 2, "a dead one holds nothing");
    }

    #[test]
    fn this_process_holds_something() {
        let own = std::process::id();
        assert!(held_by(&[own])[&own].resident > 1 << 20);
    }
}
