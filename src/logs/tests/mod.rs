//! A log under rotation is one stream: every byte that was written, once and in order.

mod hammer;
mod keeping;
mod stream;

use super::log::Log;
use super::{Limits, archive};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

pub(super) const SMALL: Limits = Limits { max_size: Limits::SMALLEST, keep: 3 };
/// Nothing is dropped.
pub(super) const ALL: Limits = Limits { max_size: Limits::SMALLEST, keep: u16::MAX };

/// A log in a directory of its own.
pub(super) struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// On a file system that cannot collapse: `/dev/shm` is tmpfs wherever there is one.
    pub(super) fn in_memory() -> Self {
        Self { dir: tempfile::tempdir_in("/dev/shm").unwrap() }
    }

    pub(super) fn log(&self) -> PathBuf {
        self.dir.path().join("kine.log")
    }

    /// As a component has it open.
    pub(super) fn writer(&self) -> File {
        OpenOptions::new().create(true).append(true).open(self.log()).unwrap()
    }

    pub(super) fn append(&self, bytes: &[u8]) {
        self.writer().write_all(bytes).unwrap();
    }

    pub(super) fn archives(&self) -> Vec<u64> {
        archive::ends(&self.log()).unwrap()
    }

    pub(super) fn live_size(&self) -> u64 {
        std::fs::metadata(self.log()).unwrap().len()
    }

    /// Everything a new reader finds, and where it begins.
    pub(super) fn read_all(&self) -> (u64, Vec<u8>) {
        let first = Log::at(&self.log()).first().unwrap().unwrap_or(0);
        (first, read_from(&self.log(), first))
    }
}

pub(super) fn read_from(path: &Path, offset: u64) -> Vec<u8> {
    let mut log = Log::at(path);
    let mut all = Vec::new();
    let mut buffer = vec![0; 10_000];
    loop {
        let wanted = offset + all.len() as u64;
        let piece = log.read_at(wanted, &mut buffer).unwrap();
        if piece.length == 0 {
            assert_eq!(log.end().unwrap(), wanted, "the stream ends where its bytes do");
            return all;
        }
        assert_eq!(piece.offset, wanted, "nothing is missing in between");
        all.extend_from_slice(&buffer[..piece.length]);
    }
}

/// `count` numbered lines of different lengths, from `first` on.
pub(super) fn lines(first: usize, count: usize) -> Vec<u8> {
    (first..first + count).flat_map(line).collect()
}

pub(super) fn line(number: usize) -> Vec<u8> {
    format!("{number} {}\n", "x".repeat(number * 7919 % 400)).into_bytes()
}
