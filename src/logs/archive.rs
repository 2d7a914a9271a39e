//! Names and order of a log's archives. The name is the offset in the stream at which the archive ends, so one rename is all it
//! takes to add one, and no crash can leave two of one name or a hole in a numbering.

use crate::files;
use rustix::fs::RawDir;
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Enough for ten petabytes, and the names sort by age.
const DIGITS: usize = 16;

/// Bytes of a listing that the kernel fills in one call: some two hundred names.
const LISTED_AT_ONCE: usize = 8192;

/// The archive of `log` that ends at `end`.
pub(super) fn path(log: &Path, end: u64) -> PathBuf {
    let mut path = log.as_os_str().to_owned();
    path.push(format!(".{end:0DIGITS$}"));
    path.into()
}

/// Where an archive is written before it has its name. One name, so a crash leaves one file, which the next writer replaces.
pub(super) fn unfinished(log: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(log.file_name().unwrap_or_default());
    name.push(".next");
    log.with_file_name(name)
}

/// The ends of all archives of `log`, oldest first. A directory that is gone has none.
pub(super) fn ends(log: &Path) -> io::Result<Vec<u64>> {
    let (Some(name), Some(parent)) = (log.file_name(), log.parent()) else { return Ok(Vec::new()) };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let dir = match files::open_list(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        dir => dir?,
    };
    // A thousand logs lie in one directory, and each of them begins with a look: no name is copied for it.
    let mut buffer = [MaybeUninit::uninit(); LISTED_AT_ONCE];
    let mut entries = RawDir::new(&dir, &mut buffer);
    let mut ends = Vec::new();
    while let Some(entry) = entries.next() {
        ends.extend(end_of(name.as_bytes(), entry?.file_name().to_bytes()));
    }
    ends.sort_unstable();
    Ok(ends)
}

fn end_of(log: &[u8], name: &[u8]) -> Option<u64> {
    let digits = name.strip_prefix(log)?.strip_prefix(b".")?;
    if digits.len() != DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn archives_are_found_by_their_whole_name_and_listed_by_age() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("kine.log");
        for path in [
            path(&log, 70),
            path(&log, 9),
            path(&dir.path().join("kine"), 5),
            dir.path().join("kine.log.1"),
            unfinished(&log),
            log.clone(),
        ] {
            fs::File::create(path).unwrap();
        }
        assert_eq!(ends(&log).unwrap(), [9, 70]);
        assert_eq!(ends(&dir.path().join("absent/kine.log")).unwrap(), [0; 0]);
    }
}
