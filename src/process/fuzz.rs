//! What the process adapter reads, under any bytes: ledger records, the kernel's tables of processes and mounts, the marks
//! in an environment, and the end of a log.

use super::mark::StateMark;
use super::{hierarchy, ledger as records};
use crate::fuzzing::text;
use crate::layout::Layout;
use crate::logs::text_of_last;
use crate::names;
use procfs::FromRead;
use std::io::Write;

pub fn ledger(bytes: &[u8]) {
    if let Ok(record) = records::parse(bytes) {
        assert!(names::chain(&record.component.chain).is_ok(), "{}", record.component);
        assert!(record.cgroup.iter().all(|cgroup| cgroup.components().count() > 2), "{:?}", record.cgroup);
        let written = serde_json::to_vec_pretty(&record).unwrap_or_default();
        assert_eq!(records::parse(&written).ok(), Some(record));
    }
}

/// A process chooses its own name, and must not become another process by it, or none.
fn assert_seen_under_any_name(name: &[u8]) {
    let name = &name[..name.len().min(15)];
    let zeroes = "0 ".repeat(29);
    let line =
        [b"4711 (", name, b") S 1 4711 4700 0 -1 0 0 0 0 0 1 2 0 0 20 0 1 0 123456 1 1 ", zeroes.as_bytes()]
            .concat();
    let stat = procfs::process::Stat::from_read(&line[..])
        .map(|stat| (stat.pid, stat.session, stat.starttime, stat.state));
    assert_eq!(stat.ok(), Some((4711, 4700, 123_456, 'S')), "{}", text(&line));
}

/// `/proc/<pid>/stat`, `/proc/self/mountinfo` and `cgroup`, a mark, and a log's end, all from the same bytes.
pub fn process_tables(bytes: &[u8]) {
    assert_seen_under_any_name(bytes);
    let text = text(bytes);
    // Mounts and membership, in this order, apart by an empty line.
    let middle = bytes.windows(2).position(|two| two == b"\n\n").map_or(bytes.len(), |end| end + 1);
    let (mountinfo, membership) = bytes.split_at(middle);
    for place in hierarchy::within(mountinfo, membership.trim_ascii_start()) {
        let points =
            mountinfo.split(|byte| *byte == b'\n').filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
        assert!(points.count() > 0 && !place.ends_with(".."), "{}", place.display());
    }
    let mark = StateMark::of(&Layout::new("/state".into(), None));
    if let Some(component) = mark.parse(&text) {
        assert_eq!(mark.component(&component), text);
    }
    let Ok(mut log) = tempfile::NamedTempFile::new() else { return };
    if log.write_all(bytes).is_ok() {
        let tail = text_of_last(log.path(), 0, 3).unwrap_or_default();
        assert!(tail.len() <= 3 && tail.iter().all(|line| text.contains(line.as_str())), "{tail:?}");
    }
}
