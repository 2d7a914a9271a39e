//! sha256 of what passes by, so that nothing is read a second time to be verified, and nothing is held whole.

use super::record::at;
use super::store::StoreError;
use sha2::{Digest, Sha256};
use std::io::{self, Read, Write};
use std::path::Path;

/// A reader that hashes what is read, and says how much that was.
pub(super) struct Hashing<R, F> {
    inner: R,
    sha256: Sha256,
    tell: F,
}

impl<R: Read, F: FnMut(u64)> Hashing<R, F> {
    pub(super) fn new(inner: R, tell: F) -> Self {
        Self { inner, sha256: Sha256::new(), tell }
    }

    /// Of everything read so far, in hex.
    pub(super) fn sha256(self) -> String {
        hex::encode(self.sha256.finalize())
    }
}

impl<R: Read, F: FnMut(u64)> Read for Hashing<R, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.sha256.update(&buffer[..read]);
        (self.tell)(read as u64);
        Ok(read)
    }
}

/// A reader that says how much was read.
pub(super) struct Told<R, F> {
    pub inner: R,
    pub tell: F,
}

impl<R: Read, F: FnMut(u64)> Read for Told<R, F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        (self.tell)(read as u64);
        Ok(read)
    }
}

/// Which end of a copy failed: what is read may be torn, where it is written may be full.
#[derive(Debug)]
pub(super) enum CopyError {
    Read(io::Error),
    Write(io::Error),
}

impl CopyError {
    pub(super) fn source(self) -> io::Error {
        match self {
            Self::Read(error) | Self::Write(error) => error,
        }
    }

    /// What failed to be written failed at `target`; the rest is the source's own.
    pub(super) fn place<E: From<StoreError>>(self, target: &Path, torn: impl FnOnce(io::Error) -> E) -> E {
        match self {
            Self::Read(error) => torn(error),
            Self::Write(error) => StoreError::of(at("write", target)(error)).into(),
        }
    }
}

/// Copies all of `from` and returns its sha256 in hex. `tell` hears of each piece.
pub(super) fn hash_to(
    from: &mut impl Read,
    to: &mut impl Write,
    mut tell: impl FnMut(u64),
) -> Result<String, CopyError> {
    let mut sha256 = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        let read = match from.read(&mut buffer) {
            Ok(0) => return Ok(hex::encode(sha256.finalize())),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(CopyError::Read(error)),
        };
        sha256.update(&buffer[..read]);
        to.write_all(&buffer[..read]).map_err(CopyError::Write)?;
        tell(read as u64);
    }
}
