//! The form an asset rests in: a tar in one zstd frame (`-19 --long=27`), its record first, then its files.
//!
//! Packing and unpacking are streams: each file is hashed on its way and compared with the record. Decompression runs
//! on a thread of its own, so that unpacking and hashing take no longer than the slower of the two. Blocking throughout.

use super::ahead::Ahead;
use super::hashed::{Hashing, hash_to};
use super::record::{self, RECORD, Record, at, set_mode};
use super::store::StoreError;
use crate::one_line::one_line;
use std::collections::BTreeSet;
use std::fs::{self, File, FileTimes};
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};
use tar::{Builder, EntryType, Header};
use zstd::{Decoder, Encoder};

/// How the name of a packed asset ends.
pub(super) const ENDING: &str = ".tar.zst";

/// What a program costs at rest: kcp's 177 MB become 59 MB. Packing takes minutes, once; unpacking is as fast at any level.
const LEVEL: i32 = 19;
/// 128 MiB: what `zstd -d` takes without being asked, and the most that unpacking needs of memory.
pub(super) const WINDOW_LOG: u32 = 27;

/// A record of two thousand files makes 400 kB.
const LARGEST_RECORD: u64 = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum PackedError {
    #[error("{archive} is no packed asset: {reason}")]
    Foreign { archive: String, reason: String },
    #[error("{archive} is torn: {reason}; copy it again from where it is whole, or remove it")]
    Torn { archive: String, reason: String },
    #[error("{archive}: its member {member} has sha256 {found}, and its record says {wanted}: refused")]
    Digest { archive: String, member: String, found: String, wanted: String },
    #[error(
        "{path} has sha256 {found}, and was installed with {wanted}: `berth assets verify --repair` first"
    )]
    Corrupt { path: PathBuf, found: String, wanted: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Hears bytes done and bytes in all.
pub(super) type Tell<'a> = &'a dyn Fn(u64, u64);

/// Writes the asset in `dir` to `out`. Refused where a file is not what was installed: nothing wrong is ever packed.
pub(super) fn pack(record: &Record, dir: &Path, out: &mut File, tell: Tell<'_>) -> Result<(), PackedError> {
    let failed = |path: &Path, error| PackedError::Store(StoreError::of(at("pack", path)(error)));
    let of_the_archive = |error| failed(dir, error);
    let mut encoder = Encoder::new(out, LEVEL).map_err(of_the_archive)?;
    encoder
        .include_checksum(true)
        .and_then(|()| encoder.window_log(WINDOW_LOG))
        .and_then(|()| encoder.long_distance_matching(true))
        .map_err(of_the_archive)?;
    let mut tar = Builder::new(encoder);
    let text = record.text().map_err(of_the_archive)?;
    tar.append_data(&mut header(text.len() as u64, 0o644), RECORD, text.as_slice())
        .map_err(of_the_archive)?;
    let (mut done, total) = (0, record.size());
    for (name, stamp) in &record.files {
        let path = dir.join(name);
        let file = crate::files::trusted::open(&path).map_err(|error| failed(&path, error))?;
        let mode = if record::is_program(&file.metadata().map_err(|error| failed(&path, error))?) {
            0o755
        } else {
            0o644
        };
        let mut content = Hashing::new(file, |read| {
            done += read;
            tell(done, total);
        });
        tar.append_data(&mut header(stamp.size, mode), name, (&mut content).take(stamp.size))
            .map_err(|error| failed(&path, error))?;
        let found = content.sha256();
        if found != stamp.sha256 {
            return Err(PackedError::Corrupt { path, found, wanted: stamp.sha256.clone() });
        }
    }
    tar.into_inner().and_then(Encoder::finish).map_err(of_the_archive)?;
    Ok(())
}

fn header(size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(mode);
    header.set_size(size);
    header
}

/// The record at the head of `archive`; the rest is not read.
pub(super) fn record_of(archive: impl Read, name: &str) -> Result<Record, PackedError> {
    let frame = decoder(archive, name)?;
    let mut tar = tar::Archive::new(frame);
    let mut entries = tar.entries().map_err(|error| torn(name, &error))?;
    first_record(entries.next(), name)
}

/// Reads all of it, compares every file with the record, and keeps nothing.
pub(super) fn verify(
    archive: impl Read + Send + 'static,
    name: &str,
    tell: Tell<'_>,
) -> Result<Record, PackedError> {
    read(archive, name, None, tell)
}

/// The same, and unpacks it below `tree`, an empty directory. What is there after an error is worthless.
pub(super) fn unpack(
    archive: impl Read + Send + 'static,
    name: &str,
    tree: &Path,
    tell: Tell<'_>,
) -> Result<Record, PackedError> {
    read(archive, name, Some(tree), tell)
}

fn read(
    archive: impl Read + Send + 'static,
    name: &str,
    tree: Option<&Path>,
    tell: Tell<'_>,
) -> Result<Record, PackedError> {
    let foreign =
        |reason: String| PackedError::Foreign { archive: name.to_owned(), reason: one_line(reason) };
    let mut tar = tar::Archive::new(Ahead::of(decoder(archive, name)?));
    let mut entries = tar.entries().map_err(|error| torn(name, &error))?;
    let record = first_record(entries.next(), name)?;
    let total = record.size();
    let (mut done, mut missing) = (0, record.files.clone());
    let mut directories = BTreeSet::new();
    for entry in entries {
        let mut entry = entry.map_err(|error| torn(name, &error))?;
        let path = entry.path().map_err(|error| torn(name, &error))?.into_owned();
        let stamp = missing
            .remove(&path)
            .ok_or_else(|| foreign(format!("{} is not in its record, or twice in it", path.display())))?;
        if entry.header().entry_type() != EntryType::Regular || entry.size() != stamp.size {
            return Err(foreign(format!("{} is not the plain file of its record", path.display())));
        }
        let count = |read| {
            done += read;
            tell(done, total);
        };
        let found = match tree {
            None => {
                hash_to(&mut entry, &mut io::sink(), count).map_err(|error| torn(name, &error.source()))?
            }
            Some(tree) => {
                let target = tree.join(&path);
                let made = make(tree, &path, &mut directories).map_err(StoreError::of)?;
                let found = hash_to(&mut entry, &mut &made, count)
                    .map_err(|error| error.place(&target, |source| torn(name, &source)))?;
                let is_program = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
                set_mode(&target, if is_program { 0o755 } else { 0o644 }).map_err(StoreError::of)?;
                // As it was installed: the record compares them at each start.
                let modified = SystemTime::UNIX_EPOCH
                    + Duration::from_nanos(u64::try_from(stamp.mtime_ns).unwrap_or_default());
                made.set_times(FileTimes::new().set_modified(modified))
                    .map_err(at("set the time of", &target))
                    .map_err(StoreError::of)?;
                found
            }
        };
        if found != stamp.sha256 {
            let (archive, member) = (name.to_owned(), one_line(path.display()));
            return Err(PackedError::Digest { archive, member, found, wanted: stamp.sha256 });
        }
    }
    if let Some(path) = missing.keys().next() {
        return Err(foreign(format!("{} of its record is not in it", path.display())));
    }
    // To the last byte: the frame's own checksum stands there.
    io::copy(&mut tar.into_inner(), &mut io::sink()).map_err(|error| torn(name, &error))?;
    Ok(record)
}

/// An empty file below `tree`, and the directories on the way to it, for any account to use.
fn make(
    tree: &Path,
    path: &Path,
    directories: &mut BTreeSet<PathBuf>,
) -> Result<File, crate::files::FileError> {
    let above: Vec<_> = path.ancestors().skip(1).map(|dir| tree.join(dir)).collect();
    for dir in above.iter().rev() {
        if directories.insert(dir.clone()) {
            fs::create_dir_all(dir).map_err(at("create the directory", dir))?;
            set_mode(dir, 0o755)?;
        }
    }
    let path = tree.join(path);
    File::create_new(&path).map_err(at("create", &path))
}

fn decoder<R: Read>(archive: R, name: &str) -> Result<Decoder<'static, io::BufReader<R>>, PackedError> {
    let mut decoder = Decoder::new(archive).map_err(|error| torn(name, &error))?;
    decoder.window_log_max(WINDOW_LOG).map_err(|error| torn(name, &error))?;
    Ok(decoder.single_frame())
}

fn first_record<R: Read>(
    first: Option<io::Result<tar::Entry<'_, R>>>,
    name: &str,
) -> Result<Record, PackedError> {
    let foreign = |reason: String| PackedError::Foreign { archive: name.to_owned(), reason };
    let mut entry = match first {
        Some(Ok(entry)) if entry.path().is_ok_and(|path| path == Path::new(RECORD)) => entry,
        Some(Err(error)) => return Err(torn(name, &error)),
        _ => return Err(foreign(format!("it does not begin with {RECORD}"))),
    };
    let mut text = Vec::new();
    (&mut entry).take(LARGEST_RECORD).read_to_end(&mut text).map_err(|error| torn(name, &error))?;
    let record = record::parse(&text, Path::new(RECORD)).map_err(foreign)?;
    is_sound(&record).map_err(foreign)?;
    Ok(record)
}

/// Its digest becomes the name of a directory, and its files' names lead to where they are written.
fn is_sound(record: &Record) -> Result<(), String> {
    if record.digest.is_empty() || !record.digest.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
        return Err("its record names no digest".to_owned());
    }
    let mut paths = record.files.keys();
    let outside = paths.find(|path| {
        path.as_os_str().is_empty() || path.components().any(|step| !matches!(step, Component::Normal(_)))
    });
    match outside {
        Some(path) => Err(format!("its file {} leads outside", one_line(path.display()))),
        None => Ok(()),
    }
}

fn torn(archive: &str, error: &io::Error) -> PackedError {
    PackedError::Torn { archive: archive.to_owned(), reason: one_line(error) }
}

#[cfg(test)]
#[path = "packed_tests.rs"]
mod tests;
