//! Reads ahead on a thread of its own: whoever hashes and writes what is read does not wait for its decompression.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, sync_channel};

/// Large enough that a hand-over costs nothing, small enough to stay in a cache.
const CHUNK: usize = 512 << 10;
/// How many chunks wait at most.
const AHEAD: usize = 4;

/// A reader whose source is read elsewhere. Its thread ends with the source, or at the next chunk once this is dropped.
#[derive(Debug)]
pub(super) struct Ahead {
    chunks: Receiver<io::Result<Vec<u8>>>,
    chunk: Vec<u8>,
    taken: usize,
    has_ended: bool,
}

impl Ahead {
    /// The error of a thread that could not be started is the first that is read.
    pub(super) fn of(mut source: impl Read + Send + 'static) -> Self {
        let (send, chunks) = sync_channel(AHEAD);
        let first = send.clone();
        let thread = std::thread::Builder::new().name("read-ahead".to_owned()).spawn(move || {
            loop {
                let mut chunk = Vec::with_capacity(CHUNK);
                let read = (&mut source).take(CHUNK as u64).read_to_end(&mut chunk);
                let is_last = !matches!(read, Ok(1..));
                if send.send(read.map(|_| chunk)).is_err() || is_last {
                    return;
                }
            }
        });
        if let Err(error) = thread {
            // There is room for it, and a reader who is gone needs none.
            let _ = first.try_send(Err(error));
        }
        Self { chunks, chunk: Vec::new(), taken: 0, has_ended: false }
    }
}

impl Read for Ahead {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.chunk.len() && !self.has_ended {
            // An empty chunk is the end; a thread that is gone without one has panicked.
            self.chunk = self.chunks.recv().map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))??;
            self.taken = 0;
            self.has_ended = self.chunk.is_empty();
        }
        let rest = &self.chunk[self.taken..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_ahead_is_the_source_to_its_last_byte() {
        let source: Vec<u8> = (0..=250).cycle().take(CHUNK * 7 / 2).collect();
        let mut read = Vec::new();
        let mut ahead = Ahead::of(io::Cursor::new(source.clone()));
        ahead.read_to_end(&mut read).unwrap();
        assert_eq!(read, source);
        assert_eq!(ahead.read(&mut [0; 8]).unwrap(), 0);
    }

    #[test]
    fn a_failing_source_fails_its_reader() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("a dead disk"))
            }
        }
        let error =
            Ahead::of(io::Cursor::new([1, 2]).chain(Broken)).read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "a dead disk");
    }
}
