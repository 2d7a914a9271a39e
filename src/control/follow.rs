//! A log as a stream: its last lines, then what is written, for as long as the reader stays.
//!
//! The kernel only wakes the follower; what happened is read from the files themselves, so a lost or merged notification
//! loses no line. It survives both ways to rotate: the file replaced by a new one (another inode under the same name: the
//! old one is read to its end first), and the file cut short in place (shorter than what was read).

use super::tail::begin_of_last;
use crate::file_events::FileEvents;
use crate::off_thread::off_thread;
use axum::body::Bytes;
use futures::stream::{Stream, TryStreamExt, try_unfold};
use std::io::{self, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio_util::io::ReaderStream;

/// Read and sent at once: bounds what one slow reader holds in memory.
const CHUNK: usize = 64 << 10;

/// The last `lines` lines as they are now. An error when the file is missing.
pub(super) async fn last_lines(
    path: &Path,
    lines: usize,
) -> io::Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>> {
    let (file, begin) = open_at_tail(path, lines).await?;
    let length = file.metadata().await?.len().saturating_sub(begin);
    Ok(ReaderStream::with_capacity(file.take(length), CHUNK))
}

/// The last `lines` lines and everything after them. A file that is not there yet is waited for, a directory is not.
/// The stream ends when the directory is gone: its cluster was deleted.
pub(super) async fn follow(
    path: PathBuf,
    lines: usize,
) -> io::Result<impl Stream<Item = io::Result<Bytes>> + Send + use<>> {
    let follower = Follower::new(path, lines).await?;
    let chunks = try_unfold(follower, |mut follower| async move {
        Ok::<_, io::Error>(follower.next().await?.map(|chunk| (chunk, follower)))
    });
    Ok(chunks.into_stream())
}

async fn open_at_tail(path: &Path, lines: usize) -> io::Result<(File, u64)> {
    let mut file = File::open(path).await?.into_std().await;
    let (file, begin) = off_thread(move || {
        let begin = begin_of_last(&mut file, lines)?;
        Ok::<_, io::Error>((file, begin))
    })
    .await?;
    let mut file = File::from_std(file);
    file.seek(SeekFrom::Start(begin)).await?;
    Ok((file, begin))
}

struct Follower {
    path: PathBuf,
    events: FileEvents,
    open: Option<OpenLog>,
}

struct OpenLog {
    file: File,
    inode: (u64, u64),
    position: u64,
}

impl Follower {
    async fn new(path: PathBuf, lines: usize) -> io::Result<Self> {
        // Watched before the first look, so that nothing can happen in between unseen.
        let mut follower = Self { events: FileEvents::of(&path)?, open: None, path };
        match open_at_tail(&follower.path, lines).await {
            Ok((file, begin)) => follower.adopt(file, begin).await?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        Ok(follower)
    }

    /// Follows `file` from now on. The watch is set on the open file, not on the name, which may mean another one by now.
    async fn adopt(&mut self, file: File, position: u64) -> io::Result<()> {
        let metadata = file.metadata().await?;
        self.events.follow(&file)?;
        let inode = (metadata.dev(), metadata.ino());
        self.open = Some(OpenLog { file, inode, position });
        Ok(())
    }

    /// The next chunk; `None` when nothing can come any more.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            if let Some(chunk) = self.read().await? {
                return Ok(Some(chunk));
            }
            if let Some(successor) = self.successor().await? {
                // Written to the old file between the last read and the look at its name.
                if let Some(chunk) = self.read().await? {
                    return Ok(Some(chunk));
                }
                self.adopt(successor, 0).await?;
                continue;
            }
            if self.is_deleted().await? {
                if let Some(chunk) = self.read().await? {
                    return Ok(Some(chunk));
                }
                // An open file keeps its directory from ending, and nothing can be added to this one that matters.
                self.open = None;
            }
            if self.abandoned().await? {
                return Ok(None);
            }
            self.events.changed().await?;
        }
    }

    async fn read(&mut self) -> io::Result<Option<Bytes>> {
        let Some(log) = &mut self.open else { return Ok(None) };
        if log.file.metadata().await?.len() < log.position {
            log.position = log.file.seek(SeekFrom::Start(0)).await?;
        }
        let mut chunk = vec![0; CHUNK];
        let read = log.file.read(&mut chunk).await?;
        log.position += read as u64;
        chunk.truncate(read);
        Ok((read > 0).then(|| chunk.into()))
    }

    /// The file under the name, if it is another one than the one that is open.
    async fn successor(&self) -> io::Result<Option<File>> {
        let file = match File::open(&self.path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let metadata = file.metadata().await?;
        let same = self.open.as_ref().is_some_and(|log| log.inode == (metadata.dev(), metadata.ino()));
        Ok((!same).then_some(file))
    }

    async fn is_deleted(&self) -> io::Result<bool> {
        let Some(log) = &self.open else { return Ok(false) };
        Ok(log.file.metadata().await?.nlink() == 0)
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
