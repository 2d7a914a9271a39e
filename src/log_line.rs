//! Waits for a line that a component writes to its log: the gate of everything that says "ready" only there.
//!
//! The gates of kine and the cloud controller manager call [`wait_for`], which is woken by inotify and never gives up by
//! itself: the caller holds the deadline. Those of OpenBao and kcp probe, and read [`NewLines`] in between. A place in a log
//! is its offset in all that was ever written to it, so a rotation moves nothing.

use crate::file_events::{FileEvents, WatchError};
use crate::logs::Log;
use crate::off_thread::off_thread;
use std::io;
use std::path::{Path, PathBuf};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;

/// A longer line is judged by its beginning: a component that writes no newline must not fill the daemon's memory.
const LONGEST_LINE: usize = 64 << 10;
/// Read and judged at once: bounds what a gate holds in memory, however much was written since.
const CHUNK: usize = 64 << 10;

/// Why no line can be waited for.
#[derive(Debug, thiserror::Error)]
pub enum LogLineError {
    #[error(transparent)]
    Watch(#[from] WatchError),
    #[error("read the log {path}: {source}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The first whole line, written after `offset` bytes of the log at `path`, that `wanted` accepts. A log that does not exist
/// yet is waited for. Cancel-safe: holds nothing but a watch and an open file.
pub async fn wait_for(
    path: &Path,
    offset: u64,
    mut wanted: impl FnMut(&str) -> bool + Send,
) -> Result<String, LogLineError> {
    let mut events = FileEvents::of(path)?;
    let mut log = NewLines::after(path, offset);
    loop {
        loop {
            let (rest, lines) = log.read().await?;
            log = rest;
            let Some(lines) = lines else { break };
            if let Some(line) = lines.into_iter().find(|line| wanted(line)) {
                return Ok(line);
            }
        }
        events.changed().await?;
    }
}

/// The latest of all lines after `offset` that `counts` counts, as soon as it is one that `wanted` accepts: what a program
/// said last, where it takes its word back. Otherwise as [`wait_for`].
pub async fn wait_for_latest(
    path: &Path,
    offset: u64,
    mut counts: impl FnMut(&str) -> bool + Send,
    wanted: impl Fn(&str) -> bool + Send,
) -> Result<String, LogLineError> {
    let mut events = FileEvents::of(path)?;
    let mut log = NewLines::after(path, offset);
    let mut latest = None;
    loop {
        loop {
            let (rest, lines) = log.read().await?;
            log = rest;
            let Some(lines) = lines else { break };
            latest = lines.into_iter().rfind(|line| counts(line)).or(latest);
        }
        if let Some(line) = latest.take_if(|line| wanted(line)) {
            return Ok(line);
        }
        events.changed().await?;
    }
}

/// Reads what was appended, through any rotation of the log.
#[derive(Debug)]
pub struct NewLines {
    log: Log,
    offset: u64,
    partial: Vec<u8>,
}

impl NewLines {
    /// The lines written after `offset` bytes of the log at `path`, which need not exist yet.
    pub fn after(path: &Path, offset: u64) -> Self {
        Self { log: Log::at(path), offset, partial: Vec::new() }
    }

    /// The next lines that are whole, a bounded number, without waiting for more; `None` when there is nothing more to read.
    pub async fn read(mut self) -> Result<(Self, Option<Vec<String>>), LogLineError> {
        off_thread(move || self.written().map(|lines| (self, lines))).await
    }

    /// The same for a caller that is off the arbiter already. Blocking.
    pub fn written(&mut self) -> Result<Option<Vec<String>>, LogLineError> {
        self.next_lines().map_err(|source| LogLineError::Read { path: self.log.path().to_owned(), source })
    }

    fn next_lines(&mut self) -> io::Result<Option<Vec<String>>> {
        let mut chunk = vec![0; CHUNK];
        let piece = self.log.read_at(self.offset, &mut chunk)?;
        if piece.length == 0 {
            return Ok(None);
        }
        if piece.offset != self.offset {
            // What it was the beginning of is gone.
            self.partial.clear();
        }
        self.offset = piece.offset + piece.length as u64;
        let mut lines = Vec::new();
        for piece in chunk[..piece.length].split_inclusive(|byte| *byte == b'\n') {
            let (text, ended) = match piece.split_last() {
                Some((b'\n', text)) => (text, true),
                _ => (piece, false),
            };
            let room = LONGEST_LINE.saturating_sub(self.partial.len());
            self.partial.extend_from_slice(&text[..text.len().min(room)]);
            if ended {
                lines.push(String::from_utf8_lossy(&self.partial).into_owned());
                self.partial.clear();
            }
        }
        Ok(Some(lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, OpenOptions};
    use std::io::Write;

    fn append(path: &Path, text: &str) {
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        file.write_all(text.as_bytes()).unwrap();
    }

    /// Waits for the line `ready` in `log` and runs `act` in between: after a line of the first look was judged.
    async fn ready_after(log: &Path, act: impl FnOnce() + Send + 'static) -> String {
        let mut act = Some(act);
        wait_for(log, 0, |line| {
            if let Some(act) = act.take() {
                act();
            }
            line == "ready"
        })
        .await
        .unwrap()
    }

    #[tokio::test]
    async fn a_line_from_before_the_offset_is_not_taken_for_this_life() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("kine.log");
        append(&log, "ready: first life\n");
        let offset = std::fs::metadata(&log).unwrap().len();
        append(&log, "starting\nready: second life\n");
        let line = wait_for(&log, offset, |line| line.starts_with("ready")).await.unwrap();
        assert_eq!(line, "ready: second life");
    }

    #[tokio::test]
    async fn a_log_that_does_not_exist_yet_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("late.log");
        let wait = wait_for(&log, 0, |line| line == "ready");
        let (line, ()) = tokio::join!(wait, async { append(&log, "ready\n") });
        assert_eq!(line.unwrap(), "ready");
    }

    #[tokio::test]
    async fn a_word_that_was_taken_back_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("ccm.log");
        let latest = || wait_for_latest(&log, 0, |line| !line.starts_with('#'), |line| line == "ready");
        append(&log, "# starting\nready\n# more\n");
        assert_eq!(latest().await.unwrap(), "ready");
        append(&log, "lost\n# more\n");
        let (line, ()) = tokio::join!(latest(), async { append(&log, "ready\n# more\n") });
        assert_eq!(line.unwrap(), "ready");
    }

    #[tokio::test]
    async fn half_a_line_is_not_judged_before_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("slow.log");
        append(&log, "starting\nrea");
        let target = log.clone();
        assert_eq!(ready_after(&log, move || append(&target, "dy\n")).await, "ready");
    }

    #[tokio::test]
    async fn a_rotation_loses_neither_the_old_end_nor_the_new_beginning() {
        for (in_old, in_new) in [("ready\n", ""), ("", "ready\n")] {
            let dir = tempfile::tempdir().unwrap();
            let log = dir.path().join("a.log");
            append(&log, "starting\n");
            let target = log.clone();
            let line = ready_after(&log, move || {
                append(&target, in_old);
                std::fs::rename(&target, target.with_extension("1")).unwrap();
                append(&target, in_new);
            });
            assert_eq!(line.await, "ready");
        }
    }

    #[tokio::test]
    async fn a_truncated_log_is_read_from_its_start() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("a.log");
        append(&log, "a long first line\n");
        let target = log.clone();
        let line = ready_after(&log, move || {
            File::options().write(true).truncate(true).open(&target).unwrap();
            append(&target, "ready\n");
        });
        assert_eq!(line.await, "ready");
    }
}
