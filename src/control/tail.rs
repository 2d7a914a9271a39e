//! Where the last lines of a file begin, found from its end: a log may be large, and its end is what is asked for.

use std::io::{self, Read, Seek, SeekFrom};

const BLOCK: u64 = 64 << 10;

/// The offset at which the last `lines` lines begin. An unfinished last line counts as one. Blocking.
pub(super) fn begin_of_last(file: &mut (impl Read + Seek), lines: usize) -> io::Result<u64> {
    let length = file.seek(SeekFrom::End(0))?;
    if lines == 0 {
        return Ok(length);
    }
    let mut block = Vec::new();
    let mut found = 0;
    let mut end = length;
    while end > 0 {
        let begin = end.saturating_sub(BLOCK);
        file.seek(SeekFrom::Start(begin))?;
        block.clear();
        // A file that shrinks meanwhile gives a short block: what is there is what counts.
        file.by_ref().take(end - begin).read_to_end(&mut block)?;
        for (index, byte) in block.iter().enumerate().rev() {
            let after = begin + index as u64 + 1;
            // The newline that ends the file ends its last line and begins none.
            if *byte == b'\n' && after < length {
                found += 1;
                if found == lines {
                    return Ok(after);
                }
            }
        }
        end = begin;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    fn tail(text: &str, lines: usize) -> String {
        let begin = begin_of_last(&mut Cursor::new(text), lines).unwrap();
        text[usize::try_from(begin).unwrap()..].to_owned()
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
}
