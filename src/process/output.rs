//! The end of a component's log, for failure reports.
//!
//! Reads backwards from the end, and never more than a failure report can use.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

const BLOCK: u64 = 8 * 1024;
/// A program that writes one endless line shall not fill the daemon's memory.
const MOST: u64 = 256 * 1024;

/// The last `lines` lines; a line cut by [`MOST`] begins in its middle. Blocking.
pub(super) fn tail(log: &Path, lines: usize) -> io::Result<Vec<String>> {
    let file = File::open(log)?;
    let end = file.metadata()?.len();
    let mut start = end;
    let mut bytes = Vec::new();
    while start > 0 && end - start < MOST && lines_in(&bytes) <= lines {
        let block = BLOCK.min(start);
        start -= block;
        let mut earlier = vec![0; usize::try_from(block).unwrap_or_default()];
        file.read_exact_at(&mut earlier, start)?;
        earlier.append(&mut bytes);
        bytes = earlier;
    }
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    Ok(all[all.len().saturating_sub(lines)..].iter().map(|line| (*line).to_owned()).collect())
}

fn lines_in(bytes: &[u8]) -> usize {
    bytes.split(|byte| *byte == b'\n').count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::Write;

    fn tail_of(content: &[u8], lines: usize) -> Vec<String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        tail(file.path(), lines).unwrap()
    }

    #[test]
    fn an_unfinished_last_line_counts_and_an_empty_log_has_none() {
        assert_eq!(tail_of(b"one\ntwo\nthr", 2), ["two", "thr"]);
        assert_eq!(tail_of(b"", 2), [""; 0]);
        assert_eq!(tail_of(b"one", 0), [""; 0]);
    }

    #[test]
    fn an_endless_line_is_cut() {
        let endless = vec![b'x'; 3 * 1024 * 1024];
        let got = tail_of(&endless, 5);
        assert_eq!((got.len(), got[0].len() as u64), (1, MOST));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn the_tail_is_the_end_of_all_lines(
            all in proptest::collection::vec("[a-zä]{0,99}", 0..300),
            lines in 0_usize..350,
        ) {
            let content: String = all.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
            prop_assert_eq!(tail_of(content.as_bytes(), lines), all[all.len().saturating_sub(lines)..].to_vec());
        }
    }
}
