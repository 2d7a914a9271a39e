//! The first line of a live file whose head was removed: how many bytes of the stream came before the file, and how long
//! the line itself is. Being part of the file it moves with the removal, so it is right at every instant, crashes included.
//!
//! Written by a rotation over bytes that are archived already. Whoever opens the file with a pager sees one more line.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const BEFORE: &[u8] = b"--- berth: ";
const BETWEEN: &[u8] =
    b" bytes were written before this file, the latest are in the files beside it; this line has ";
const AFTER: &[u8] = b" bytes";
const BASE_DIGITS: usize = 16;
const LENGTH_DIGITS: usize = 8;

/// The shortest header, with its newline.
pub(super) const SHORTEST: u64 = LINE as u64;
const LINE: usize = BEFORE.len() + BASE_DIGITS + BETWEEN.len() + LENGTH_DIGITS + AFTER.len() + 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// Offset in the stream of the file's first byte, which is the header's.
    pub(super) base: u64,
    /// Bytes of the line, newline included; the stream goes on after them.
    pub(super) length: u64,
}

impl Header {
    /// The line, filled up with blanks to its length.
    pub(super) fn line(self) -> Vec<u8> {
        let base = format!("{:0width$}", self.base, width = BASE_DIGITS);
        let length = format!("{:0width$}", self.length, width = LENGTH_DIGITS);
        let mut line = [BEFORE, base.as_bytes(), BETWEEN, length.as_bytes(), AFTER].concat();
        let end = usize::try_from(self.length).unwrap_or(usize::MAX).saturating_sub(1);
        line.resize(end.max(line.len()), b' ');
        line.push(b'\n');
        line
    }

    /// `None`: the file begins with its component's own output.
    pub(super) fn parse(head: &[u8]) -> Option<Self> {
        let rest = head.strip_prefix(BEFORE)?;
        let (base, rest) = number(rest, BASE_DIGITS)?;
        let (length, rest) = number(rest.strip_prefix(BETWEEN)?, LENGTH_DIGITS)?;
        rest.strip_prefix(AFTER)?;
        (length >= SHORTEST).then_some(Self { base, length })
    }

    /// The header of an open file. One page, which the kernel changes as a whole.
    pub(super) fn read(file: &File) -> io::Result<Option<Self>> {
        let mut head = [0; LINE];
        let mut filled = 0;
        while filled < head.len() {
            match file.read_at(&mut head[filled..], filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self::parse(&head[..filled]))
    }
}

fn number(text: &[u8], digits: usize) -> Option<(u64, &[u8])> {
    let (number, rest) = text.split_at_checked(digits)?;
    if !number.iter().all(u8::is_ascii_digit) {
        return None;
    }
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_one_line_of_its_own_length_and_is_read_back() {
        for length in [SHORTEST, SHORTEST + 1, 70_000] {
            let header = Header { base: 1 << 40, length };
            let line = header.line();
            assert_eq!((line.len() as u64, line.last()), (length, Some(&b'\n')));
            assert_eq!(line.iter().position(|byte| *byte == b'\n'), Some(line.len() - 1));
            assert_eq!(Header::parse(&line), Some(header));
        }
    }

    #[test]
    fn output_of_a_component_is_no_header() {
        let line = Header { base: 65536, length: SHORTEST }.line();
        for output in [&b""[..], b"--- berth: ", b"starting\n", &line[..line.len() - 8], &line[1..]] {
            assert_eq!(Header::parse(output), None, "{:?}", String::from_utf8_lossy(output));
        }
        let short = Header { base: 1, length: 3 }.line();
        assert_eq!(Header::parse(&short), None, "a length that its own line does not fit into");
    }
}
