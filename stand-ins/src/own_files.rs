//! Files that a stand-in reads with its own account's rights, as the program it stands for does: no other account is at stake.

#![allow(clippy::disallowed_methods, reason = "the one place")]

use std::io;
use std::path::Path;

pub(crate) fn bytes(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    std::fs::read(path)
}

pub(crate) fn text(path: impl AsRef<Path>) -> io::Result<String> {
    std::fs::read_to_string(path)
}
