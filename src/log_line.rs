//! Waits for a line that a component writes to its log: the gate of everything that says "ready" only there.
//!
//! The gates of kine and the cloud controller manager call [`wait_for`], which is woken by inotify and never gives up by
//! itself: the caller holds the deadline. Those of OpenBao and kcp probe, and read [`NewLines`] in between. All of them follow
//! a rotation.

use crate::file_events::{FileEvents, WatchError};
use crate::off_thread::off_thread;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;

/// A longer line is judged by its beginning: a component that writes no newline must not fill the daemon's memory.
const LONGEST_LINE: usize = 64 << 10;

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

/// The first whole line, after `offset` bytes of the file at `path`, that `wanted` accepts. A file that does not exist yet
/// is waited for. Cancel-safe: holds nothing but a watch and an open file.
pub async fn wait_for(
    path: &Path,
    offset: u64,
    mut wanted: impl FnMut(&str) -> bool + Send,
) -> Result<String, LogLineError> {
    let mut events = FileEvents::of(path)?;
    let mut log = NewLines::after(path, offset);
    loop {
        let (rest, lines) = log.read().await?;
        log = rest;
        if let Some(line) = lines.into_iter().find(|line| wanted(line)) {
            return Ok(line);
        }
        events.changed().await?;
    }
}

/// Reads what was appended, through a rename or a truncation of the log.
#[derive(Debug)]
pub struct NewLines {
    path: PathBuf,
    offset: u64,
    file: Option<File>,
    partial: Vec<u8>,
}

impl NewLines {
    /// The lines after `offset` bytes of the file at `path`, which need not exist yet.
    pub fn after(path: &Path, offset: u64) -> Self {
        Self { path: path.to_owned(), offset, file: None, partial: Vec::new() }
    }

    /// Every line that became whole since the last call, without waiting for more.
    pub async fn read(mut self) -> Result<(Self, Vec<String>), LogLineError> {
        off_thread(move || self.written().map(|lines| (self, lines))).await
    }

    /// The same for a caller that is off the arbiter already. Blocking.
    pub fn written(&mut self) -> Result<Vec<String>, LogLineError> {
        self.new_lines().map_err(|source| LogLineError::Read { path: self.path.clone(), source })
    }

    fn new_lines(&mut self) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        if self.file.is_none() {
            let Some(mut file) = open(&self.path)? else { return Ok(lines) };
            file.seek(SeekFrom::Start(self.offset))?;
            self.file = Some(file);
        }
        self.read_rest(&mut lines)?;
        // A rotated log was read to its end above; its successor starts at its first byte.
        if let (Some(old), Some(mut new)) = (&self.file, open(&self.path)?)
            && old.metadata()?.ino() != new.metadata()?.ino()
        {
            new.seek(SeekFrom::Start(0))?;
            self.file = Some(new);
            self.read_rest(&mut lines)?;
        }
        Ok(lines)
    }

    fn read_rest(&mut self, lines: &mut Vec<String>) -> io::Result<()> {
        let Some(file) = &mut self.file else { return Ok(()) };
        if file.metadata()?.len() < file.stream_position()? {
            file.seek(SeekFrom::Start(0))?;
            self.partial.clear();
        }
        let mut chunk = [0; 8192];
        loop {
            let read = file.read(&mut chunk)?;
            if read == 0 {
                return Ok(());
            }
            for piece in chunk[..read].split_inclusive(|byte| *byte == b'\n') {
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
        }
    }
}

fn open(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
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
