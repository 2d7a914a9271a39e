//! Old output is set aside when a component starts again, so that no log grows without bound over a crash loop.
//!
//! Called by the host before each spawn, when nobody writes to the log: a rename then loses no line. A running process
//! keeps the file it has.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Enough for days of a quiet component; four files of it are a small part of any state directory.
pub(super) const LARGEST: u64 = 16 * 1024 * 1024;
/// `log.1` is the newest of them.
pub(super) const KEPT: u32 = 3;

/// Sets `log` aside if it has more than `largest` bytes, and drops what exceeds `kept` older ones. Blocking.
pub(super) fn make_room(log: &Path, largest: u64, kept: u32) -> io::Result<()> {
    match fs::metadata(log) {
        Ok(metadata) if metadata.len() > largest => {}
        Ok(_) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    for number in (1..kept).rev() {
        match fs::rename(aside(log, number), aside(log, number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    fs::rename(log, aside(log, 1))
}

fn aside(log: &Path, number: u32) -> PathBuf {
    let mut path = log.as_os_str().to_owned();
    path.push(format!(".{number}"));
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::write_atomic;

    #[test]
    fn full_logs_are_numbered_up_to_the_limit_and_a_small_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        make_room(&log, 3, 2).expect("nothing there is fine");
        for content in ["one..", "two..", "three", "new"] {
            write_atomic(&log, content.as_bytes(), None).unwrap();
            make_room(&log, 3, 2).unwrap();
        }
        let read = |path: PathBuf| fs::read_to_string(path).ok();
        assert_eq!(read(log.clone()).as_deref(), Some("new"));
        assert_eq!(read(aside(&log, 1)).as_deref(), Some("three"));
        assert_eq!(read(aside(&log, 2)).as_deref(), Some("two.."));
        assert_eq!(read(aside(&log, 3)), None);
    }
}
