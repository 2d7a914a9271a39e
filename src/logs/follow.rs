//! A log as a stream: its last lines, then what is written, for as long as the reader stays.
//!
//! The control API and `berth logs` without a daemon send it on. The kernel only wakes the follower; what happened is read
//! from the log itself, so a lost or merged notification loses no line, and neither does a rotation.

use super::log::Log;
use super::tail::begin_of_last;
use crate::file_events::FileEvents;
use crate::off_thread::off_thread;
use axum::body::Bytes;
use futures::stream::{Stream, TryStreamExt, try_unfold};
use std::io;
use std::path::{Path, PathBuf};

/// Read and sent at once: bounds what one slow reader holds in memory.
const CHUNK: usize = 64 << 10;

/// The last `lines` lines as they are now. An error when nothing was ever written.
pub async fn last_lines(
    path: &Path,
    lines: usize,
) -> io::Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>> {
    let log = Log::at(path);
    let (reader, end) = Reader::at_tail(log, lines).await?.ok_or(io::ErrorKind::NotFound)?;
    let chunks = try_unfold(reader, move |reader| async move {
        if reader.offset >= end {
            return Ok(None);
        }
        let (mut reader, mut chunk) = reader.read().await?;
        let since = reader.offset.saturating_sub(end);
        chunk.truncate(chunk.len().saturating_sub(usize::try_from(since).unwrap_or(usize::MAX)));
        if reader.is_at_end {
            reader.offset = end;
        }
        Ok::<_, io::Error>(Some((Bytes::from(chunk), reader)))
    });
    Ok(chunks.into_stream())
}

/// The last `lines` lines and everything after them. A log that is not there yet is waited for, a directory is not.
/// The stream ends when the directory is gone: its cluster was deleted.
pub async fn follow(
    path: PathBuf,
    lines: usize,
) -> io::Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>> {
    // Watched before the first look, so that nothing can happen in between unseen.
    let events = FileEvents::of(&path)?;
    let reader = match Reader::at_tail(Log::at(&path), lines).await? {
        Some((reader, _)) => reader,
        None => Reader { log: Log::at(&path), offset: 0, is_at_end: true },
    };
    let follower = Follower { events, watched: None, reader, path };
    Ok(try_unfold(follower, Follower::next).into_stream())
}

/// A place in a log that moves on.
#[derive(Debug)]
struct Reader {
    log: Log,
    offset: u64,
    /// The last read found nothing more.
    is_at_end: bool,
}

impl Reader {
    /// At the last `lines` lines, with the end of what there is; `None` when there is no log.
    async fn at_tail(mut log: Log, lines: usize) -> io::Result<Option<(Self, u64)>> {
        off_thread(move || {
            if log.first()?.is_none() {
                return Ok(None);
            }
            let end = log.end()?;
            let offset = begin_of_last(&mut log, lines, 0, end)?;
            Ok(Some((Self { log, offset, is_at_end: false }, end)))
        })
        .await
    }

    async fn let_go_of_removed(mut self) -> io::Result<Self> {
        off_thread(move || self.log.let_go_of_removed().map(|()| self)).await
    }

    async fn read(mut self) -> io::Result<(Self, Vec<u8>)> {
        off_thread(move || {
            let mut chunk = vec![0; CHUNK];
            let piece = self.log.read_at(self.offset, &mut chunk)?;
            chunk.truncate(piece.length);
            let dropped = piece.offset.saturating_sub(self.offset);
            self.offset = piece.offset + piece.length as u64;
            self.is_at_end = piece.length == 0;
            if dropped > 0 && piece.length > 0 {
                let note = format!("[berth: {dropped} bytes were rotated away before they were read]\n");
                chunk.splice(..0, note.into_bytes());
            }
            Ok((self, chunk))
        })
        .await
    }
}

struct Follower {
    events: FileEvents,
    /// The live file whose writes the kernel tells: it may have lost its name.
    watched: Option<(u64, u64)>,
    reader: Reader,
    path: PathBuf,
}

impl Follower {
    /// The next chunk; `None` when nothing can come any more.
    async fn next(mut self) -> io::Result<Option<(Bytes, Self)>> {
        loop {
            let (reader, chunk) = self.reader.read().await?;
            self.reader = reader;
            if !chunk.is_empty() {
                return Ok(Some((chunk.into(), self)));
            }
            if self.watch_open_file()? {
                continue;
            }
            self.reader = self.reader.let_go_of_removed().await?;
            if self.abandoned().await? {
                return Ok(None);
            }
            self.events.changed().await?;
        }
    }

    /// Whether it is another file than before: it may have been written to before it was watched.
    fn watch_open_file(&mut self) -> io::Result<bool> {
        let Some(live) = self.reader.log.live() else { return Ok(false) };
        if self.watched.replace(live.inode) == Some(live.inode) {
            return Ok(false);
        }
        self.events.follow(&live.file)?;
        Ok(true)
    }

    async fn abandoned(&self) -> io::Result<bool> {
        Ok(!tokio::fs::try_exists(self.path.parent().unwrap_or(Path::new("."))).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use std::fs;
    use std::io::Write;
    use std::pin::Pin;
    use std::time::Duration;

    type Chunks = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

    struct Log {
        dir: tempfile::TempDir,
    }

    impl Log {
        fn new() -> Self {
            Self { dir: tempfile::tempdir().unwrap() }
        }
        fn path(&self) -> PathBuf {
            self.dir.path().join("kine.log")
        }
        fn append(&self, text: &str) {
            let mut file = fs::OpenOptions::new().create(true).append(true).open(self.path()).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }
        async fn follow(&self, lines: usize) -> Chunks {
            Box::pin(follow(self.path(), lines).await.unwrap())
        }
    }

    async fn expect(chunks: &mut Chunks, wanted: &str) {
        let mut got = Vec::new();
        while got.len() < wanted.len() {
            let next = tokio::time::timeout(Duration::from_secs(10), chunks.next());
            let chunk = next.await.unwrap_or_else(|_| panic!("no more after {got:?}, wanted {wanted:?}"));
            got.extend_from_slice(&chunk.unwrap().unwrap());
        }
        assert_eq!(String::from_utf8(got).unwrap(), wanted);
    }

    #[tokio::test]
    async fn a_follower_sees_the_last_lines_and_then_each_new_one() {
        let log = Log::new();
        log.append("one\ntwo\nthree\n");
        let mut chunks = log.follow(2).await;
        expect(&mut chunks, "two\nthree\n").await;
        log.append("four\n");
        expect(&mut chunks, "four\n").await;
        log.append("five\n");
        expect(&mut chunks, "five\n").await;
    }

    #[tokio::test]
    async fn a_log_replaced_by_rotation_is_read_to_its_end_and_then_the_new_one() {
        let log = Log::new();
        log.append("one\n");
        let mut chunks = log.follow(1).await;
        expect(&mut chunks, "one\n").await;
        log.append("last of the old\n");
        fs::rename(log.path(), log.dir.path().join("kine.log.1")).unwrap();
        log.append("first of the new\n");
        expect(&mut chunks, "last of the old\nfirst of the new\n").await;
        log.append("second of the new\n");
        expect(&mut chunks, "second of the new\n").await;
    }

    #[tokio::test]
    async fn a_log_cut_short_in_place_is_followed_from_its_new_beginning() {
        let log = Log::new();
        log.append("one\ntwo\n");
        let mut chunks = log.follow(5).await;
        expect(&mut chunks, "one\ntwo\n").await;
        fs::OpenOptions::new().write(true).truncate(true).open(log.path()).unwrap();
        log.append("new\n");
        expect(&mut chunks, "new\n").await;
    }

    #[tokio::test]
    async fn a_log_that_is_not_there_yet_is_waited_for() {
        let log = Log::new();
        let mut chunks = log.follow(5).await;
        log.append("born\n");
        expect(&mut chunks, "born\n").await;
    }

    #[tokio::test]
    async fn the_stream_ends_with_its_directory() {
        let log = Log::new();
        log.append("one\n");
        let mut chunks = log.follow(5).await;
        expect(&mut chunks, "one\n").await;
        drop(log);
        let end = tokio::time::timeout(Duration::from_secs(10), chunks.next()).await.unwrap();
        assert!(end.is_none(), "{end:?}");
    }

    /// A cluster is deleted file by file, and its directory is not gone before its last open file is.
    #[tokio::test]
    async fn a_log_deleted_before_its_directory_holds_up_no_end() {
        let log = Log::new();
        log.append("one\n");
        let mut chunks = log.follow(5).await;
        expect(&mut chunks, "one\n").await;
        fs::remove_file(log.path()).unwrap();
        let is_open = || {
            let open = fs::read_dir("/proc/self/fd").unwrap();
            let mut targets = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
            targets.any(|target| target.starts_with(log.dir.path()))
        };
        let let_go = async {
            while is_open() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            chunk = chunks.next() => panic!("there is nothing to read: {chunk:?}"),
            done = tokio::time::timeout(Duration::from_secs(10), let_go) => done.unwrap(),
        }
        drop(log);
        let end = tokio::time::timeout(Duration::from_secs(10), chunks.next()).await.unwrap();
        assert!(end.is_none(), "{end:?}");
    }

    #[tokio::test]
    async fn without_following_the_stream_ends_with_what_is_there() {
        let log = Log::new();
        log.append("one\ntwo\n");
        let chunks: Vec<Bytes> = last_lines(&log.path(), 1).await.unwrap().try_collect().await.unwrap();
        assert_eq!(chunks.concat(), b"two\n");
    }
}
