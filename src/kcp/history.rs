//! `<state>/kcp/handovers.jsonl`: the handovers that are over, a line each, the latest last.
//!
//! Lines are only ever added, and the oldest dropped; each change replaces the file whole. A line that is no record (a disk
//! that tore it, an editor) is named to whoever reads, kept where it is, and costs no other line.

use super::journal;
use crate::files;
use crate::one_line::one_line;
use berth_actors::handover::Record;
use berth_actors::host::History;
use std::path::Path;

/// A line has about 2 kB: two years of a handover a week.
const KEPT: usize = 100;

/// Adds `record` unless it is there already. Blocking.
pub(super) fn add(path: &Path, record: &Record) -> Result<(), String> {
    let bytes = files::read_optional(path).map_err(|error| error.to_string())?.unwrap_or_default();
    let mut lines = lines(&bytes);
    let same = |line: &&[u8]| {
        // It has no name of its own: the slots change with every handover, the moments with every second.
        serde_json::from_slice::<Record>(line).is_ok_and(|past| {
            (past.from, &past.began, past.phase) == (record.from, &record.began, record.phase)
        })
    };
    if lines.iter().any(same) {
        return Ok(());
    }
    let line = serde_json::to_vec(record).map_err(|error| error.to_string())?;
    lines.push(&line);
    let kept = &lines[lines.len().saturating_sub(KEPT)..];
    let text: Vec<u8> = kept.iter().flat_map(|line| line.iter().copied().chain([b'\n'])).collect();
    files::write_atomic(path, &text, None).map_err(|error| error.to_string())
}

/// All there are. Blocking.
pub(super) fn read(path: &Path) -> Result<History, String> {
    let bytes = files::read_optional(path).map_err(|error| error.to_string())?.unwrap_or_default();
    Ok(parse(&bytes, path))
}

/// The history in a file that is called `path`.
pub(super) fn parse(bytes: &[u8], path: &Path) -> History {
    let mut history = History::default();
    for (index, line) in lines(bytes).into_iter().enumerate() {
        match journal::parse(line, path) {
            Ok(record) => history.records.push(record),
            Err(_) => {
                let start = one_line(String::from_utf8_lossy(&line[..line.len().min(40)]));
                let place = format!("{} line {}", path.display(), index + 1);
                history.unreadable.push(format!("{place} is not a handover, and passed over: {start}"));
            }
        }
    }
    history
}

fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_actors::handover::{Phase, Wish};
    use berth_actors::identity::SlotName;
    use std::path::PathBuf;

    fn over(number: usize) -> Record {
        let mut record = Record::new(SlotName::A, Wish::Plain);
        record.phase = Phase::Done;
        record.began = Some(format!("2026-12-01T00:00:00.{number:03}Z"));
        record
    }

    fn file() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("handovers.jsonl");
        (dir, path)
    }

    #[test]
    fn each_handover_is_there_once_and_only_the_latest_are_kept() {
        let (_dir, path) = file();
        assert_eq!(read(&path), Ok(History::default()));
        for number in 0..KEPT + 5 {
            add(&path, &over(number)).unwrap();
            add(&path, &over(number)).unwrap();
        }
        let history = read(&path).unwrap();
        assert_eq!(history.records, (5..KEPT + 5).map(over).collect::<Vec<_>>());
        assert_eq!(history.unreadable, [""; 0]);
    }

    #[test]
    fn a_torn_last_line_is_named_and_costs_no_other() {
        let (_dir, path) = file();
        add(&path, &over(1)).unwrap();
        let whole = std::fs::read(&path).unwrap();
        let torn = [whole.clone(), whole[..whole.len() / 2].to_vec()].concat();
        files::write_atomic(&path, &torn, None).unwrap();
        let history = read(&path).unwrap();
        assert_eq!(history.records, [over(1)]);
        assert!(history.unreadable[0].contains("handovers.jsonl line 2 is not a handover"), "{history:?}");

        add(&path, &over(2)).unwrap();
        let history = read(&path).unwrap();
        assert_eq!((history.records, history.unreadable.len()), (vec![over(1), over(2)], 1));
    }
}
