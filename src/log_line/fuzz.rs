//! A log under any bytes: however it was written, its whole lines are told once, in order, and none is longer than the limit.

use super::{LONGEST_LINE, NewLines};
use std::io::Write;

/// The first byte says after how many bytes the reader looks for the first time.
pub fn log_lines(bytes: &[u8]) {
    let Some((first, log)) = bytes.split_first() else { return };
    let Ok(mut file) = tempfile::NamedTempFile::new() else { return };
    let mut reader = NewLines::after(file.path(), 0);
    let (early, late) = log.split_at(usize::from(*first).min(log.len()));
    let mut told = Vec::new();
    for part in [early, late] {
        if file.write_all(part).is_err() {
            return;
        }
        while let Ok(Some(lines)) = reader.written() {
            told.extend(lines);
        }
    }
    let whole = log.iter().rposition(|byte| *byte == b'\n').map_or(&[][..], |end| &log[..end]);
    let lines = whole.split(|byte| *byte == b'\n').take(if whole.len() < log.len() { usize::MAX } else { 0 });
    let expected: Vec<String> = lines
        .map(|line| String::from_utf8_lossy(&line[..line.len().min(LONGEST_LINE)]).into_owned())
        .collect();
    let expected = if log.contains(&b'\n') { expected } else { Vec::new() };
    assert_eq!(told, expected);
}
