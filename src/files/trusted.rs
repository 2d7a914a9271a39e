//! Reads that follow links and wait as the kernel pleases: of `/proc`, `/sys`, `/etc`, and of what the operator or the reader's
//! own account put there. Never below a cluster's directories: a component may have planted what root would follow.

#![allow(clippy::disallowed_methods, reason = "the one place")]

use std::fs::{self, File};
use std::io;
use std::path::Path;

pub(crate) fn bytes(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    fs::read(path)
}

pub(crate) fn text(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read_to_string(path)
}

pub(crate) fn open(path: impl AsRef<Path>) -> io::Result<File> {
    File::open(path)
}
