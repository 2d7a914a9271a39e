//! Where the last lines of a log begin, found from its end, across its archives: a log may be large, and its end is what is
//! asked for.

use super::log::Log;
use std::io;
use std::path::Path;

const BLOCK: usize = 64 << 10;
/// A failure report has a few lines; a program that writes one endless line shall not fill the daemon's memory.
const LONGEST_REPORT: u64 = 256 << 10;

/// The offset at which the last `lines` lines before `end` begin, `floor` at the earliest. An unfinished last line counts as
/// one. Blocking.
pub(super) fn begin_of_last(log: &mut Log, lines: usize, floor: u64, end: u64) -> io::Result<u64> {
    let floor = floor.max(log.first()?.unwrap_or(0)).min(end);
    let mut block = vec![0; BLOCK];
    let mut found = 0;
    let mut upto = end;
    if lines == 0 {
        return Ok(end);
    }
    while upto > floor {
        let begin = upto.saturating_sub(BLOCK as u64).max(floor);
        let Some(bytes) = fill(log, begin, &mut block[..usize::try_from(upto - begin).unwrap_or(BLOCK)])?
        else {
            // Dropped by a rotation meanwhile: what is left begins here.
            return Ok(upto);
        };
        for (index, byte) in bytes.iter().enumerate().rev() {
            let after = begin + index as u64 + 1;
            // The newline that ends the log ends its last line and begins none.
            if *byte == b'\n' && after < end {
                found += 1;
                if found == lines {
                    return Ok(after);
                }
            }
        }
        upto = begin;
    }
    Ok(floor)
}

/// The last `lines` lines of what was written from `from` on: the words of one life, not of an earlier one. A line cut by
/// [`LONGEST_REPORT`] begins in its middle. Blocking.
pub(crate) fn text_of_last(path: &Path, from: u64, lines: usize) -> io::Result<Vec<String>> {
    let mut log = Log::at(path);
    let end = log.end()?;
    // A log made anew since then has nothing older than itself.
    let floor = if from > end { 0 } else { from }.max(end.saturating_sub(LONGEST_REPORT));
    let begin = begin_of_last(&mut log, lines, floor, end)?;
    let mut bytes = vec![0; usize::try_from(end - begin).unwrap_or_default()];
    let text = fill(&mut log, begin, &mut bytes)?.unwrap_or_default();
    Ok(String::from_utf8_lossy(text).lines().map(str::to_owned).collect())
}

/// Fills `buffer` from `offset` on, less at the end of the log; `None` when that place is gone.
fn fill<'a>(log: &mut Log, offset: u64, buffer: &'a mut [u8]) -> io::Result<Option<&'a [u8]>> {
    let mut filled = 0;
    while filled < buffer.len() {
        let wanted = offset + filled as u64;
        let piece = log.read_at(wanted, &mut buffer[filled..])?;
        if piece.length == 0 {
            break;
        }
        if piece.offset != wanted {
            return Ok(None);
        }
        filled += piece.length;
    }
    Ok(Some(&buffer[..filled]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::write_atomic;
    use proptest::prelude::*;

    fn with_log<T>(content: &[u8], look: impl FnOnce(&Path) -> T) -> T {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        write_atomic(&path, content, None).unwrap();
        look(&path)
    }

    fn tail(text: &str, lines: usize) -> String {
        with_log(text.as_bytes(), |path| {
            let mut log = Log::at(path);
            let end = log.end().unwrap();
            let begin = begin_of_last(&mut log, lines, 0, end).unwrap();
            text[usize::try_from(begin).unwrap()..].to_owned()
        })
    }

    fn report(content: &[u8], from: u64, lines: usize) -> Vec<String> {
        with_log(content, |path| text_of_last(path, from, lines).unwrap())
    }

    #[test]
    fn the_last_lines_are_found_with_and_without_a_final_newline() {
        assert_eq!(tail("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(tail("a\nb\nc", 2), "b\nc");
        assert_eq!(tail("a\n\n\n", 2), "\n\n");
        assert_eq!(tail("a\nb\n", 2), "a\nb\n");
        assert_eq!(tail("a\nb\n", 9), "a\nb\n");
        assert_eq!(tail("a\nb\n", 0), "");
        assert_eq!(tail("", 3), "");
    }

    #[test]
    fn lines_longer_than_a_block_are_found_too() {
        let long = "x".repeat(150_000);
        assert_eq!(tail(&format!("a\n{long}\nb\n"), 2), format!("{long}\nb\n"));
    }

    #[test]
    fn a_report_has_the_words_of_its_own_life_only() {
        assert_eq!(report(b"one\ntwo\nthr", 0, 2), ["two", "thr"]);
        assert_eq!(report(b"one\ntwo\nthr", 4, 9), ["two", "thr"]);
        assert_eq!(report(b"one\ntwo\n", 8, 9), [""; 0], "it has not said a word");
        assert_eq!(report(b"new\n", 1000, 9), ["new"], "the log was made anew");
        assert_eq!(report(b"", 0, 2), [""; 0]);
        assert_eq!(report(b"one", 0, 0), [""; 0]);
    }

    #[test]
    fn an_endless_line_is_cut() {
        let got = report(&vec![b'x'; 3 << 20], 0, 5);
        assert_eq!((got.len(), got[0].len() as u64), (1, LONGEST_REPORT));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn the_tail_is_the_end_of_all_lines(
            all in proptest::collection::vec("[a-zä]{0,99}", 0..300),
            lines in 0_usize..350,
        ) {
            let content: String = all.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
            prop_assert_eq!(
                report(content.as_bytes(), 0, lines),
                all[all.len().saturating_sub(lines)..].to_vec()
            );
        }
    }
}
