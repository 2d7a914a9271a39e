//! Reads what a component appends to its log, as it appends it. Gates use it for what a program says nowhere else.
//!
//! The kernel reports growth through inotify; the watch exists before the first read, so no line falls between them.

use super::watched_fd::watched;
use rustix::fs::inotify;
use std::io::{self, SeekFrom};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

/// Most that one read takes, in bytes: a component in a log storm must not fill the daemon's memory.
const CHUNK: usize = 64 << 10;

#[derive(Debug)]
pub struct LogFollower {
    path: PathBuf,
    position: u64,
    /// Bytes after the last newline.
    partial: Vec<u8>,
    watch: AsyncFd<OwnedFd>,
}

impl LogFollower {
    /// Follows `path`, which must exist, from byte `offset`.
    pub fn open(path: &Path, offset: u64) -> io::Result<Self> {
        let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
        inotify::add_watch(&watch, path, inotify::WatchFlags::MODIFY)?;
        let watch = watched(watch)?;
        Ok(Self { path: path.to_owned(), position: offset, partial: Vec::new(), watch })
    }

    /// The complete lines written since the last call, without waiting. Empty at the end of the file.
    pub async fn written(&mut self) -> io::Result<Vec<String>> {
        let mut file = tokio::fs::File::open(&self.path).await?;
        if file.metadata().await?.len() < self.position {
            // Rotated under us: what was cut off is gone, the rest starts at the beginning.
            self.position = 0;
            self.partial.clear();
        }
        file.seek(SeekFrom::Start(self.position)).await?;
        let mut chunk = Vec::new();
        let read = file.take(CHUNK as u64).read_to_end(&mut chunk).await?;
        self.position += read as u64;
        self.partial.append(&mut chunk);
        let Some(end) = self.partial.iter().rposition(|&byte| byte == b'\n') else {
            if self.partial.len() > CHUNK {
                self.partial.clear();
            }
            return Ok(Vec::new());
        };
        let rest = self.partial.split_off(end + 1);
        let whole = std::mem::replace(&mut self.partial, rest);
        Ok(String::from_utf8_lossy(&whole).lines().map(str::to_owned).collect())
    }

    /// Waits until the file was written to since the last wait. May return early; cancel-safe.
    pub async fn grown(&mut self) -> io::Result<()> {
        let mut guard = self.watch.readable_mut().await?;
        let mut space = [MaybeUninit::uninit(); 1024];
        let mut events = inotify::Reader::new(guard.get_inner(), &mut space);
        while events.next().is_ok() {}
        guard.clear_ready();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn log() -> (tempfile::TempDir, PathBuf, std::fs::File) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.log");
        let mut file = crate::files::open_log(&path, None).unwrap();
        file.write_all(b"of an earlier life\n").unwrap();
        (dir, path, file)
    }

    #[tokio::test]
    async fn only_whole_lines_after_the_offset_are_seen() {
        let (_dir, path, mut file) = log();
        let mut follower = LogFollower::open(&path, 19).unwrap();
        assert_eq!(follower.written().await.unwrap(), Vec::<String>::new());
        file.write_all(b"one\ntw").unwrap();
        assert_eq!(follower.written().await.unwrap(), ["one"]);
        file.write_all(b"o\n").unwrap();
        assert_eq!(follower.written().await.unwrap(), ["two"]);
    }

    #[tokio::test]
    async fn a_line_written_between_read_and_wait_ends_the_wait() {
        let (_dir, path, mut file) = log();
        let mut follower = LogFollower::open(&path, 19).unwrap();
        assert!(follower.written().await.unwrap().is_empty());
        file.write_all(b"late\n").unwrap();
        follower.grown().await.unwrap();
        assert_eq!(follower.written().await.unwrap(), ["late"]);
    }

    #[tokio::test]
    async fn a_truncated_log_is_read_from_its_new_beginning() {
        let (_dir, path, mut file) = log();
        let mut follower = LogFollower::open(&path, 19).unwrap();
        file.set_len(0).unwrap();
        file.write_all(b"new\n").unwrap();
        assert_eq!(follower.written().await.unwrap(), ["new"]);
    }
}
