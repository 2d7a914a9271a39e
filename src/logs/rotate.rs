//! The steps of a rotation. The keeper calls [`make_room`], from one thread at a time; nobody else writes to a log.
//!
//! ```text
//! prune    the oldest archives, so that there is room on the disk
//! archive  the head of the live file, up to a line's end, into a file of its own: temp, sync, rename
//! finish   header   at the cut, over bytes that are archived: what the file will say of itself
//!          collapse the head away, which makes the header the first line; or punch it out, where that is all there is
//! ```
//!
//! From the rename on, the archive's name says that the head is archived: readers do not look at it any more. A daemon that
//! dies after any step leaves a log that reads whole, and `finish` needs no memory: it derives the cut from the marks.

use super::Limits;
use super::archive;
use super::header::{self, Header};
use super::log::{Extent, Marks};
use super::space::{self, ALIGN, Way};
use crate::files;
use berth_actors::spec::User;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// How far back from the cut a line's end is looked for; a longer line is cut, which only a pager shows.
const LONGEST_LINE: u64 = 1 << 20;

/// Why a log grows.
#[derive(Debug, thiserror::Error)]
pub(super) enum RotateError {
    #[error(
        "its file system can neither collapse nor punch out a part of a file: it grows until its component is restarted on another one"
    )]
    Unsupported,
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Moves output into archives until the live file is within its limit. Its component may be writing. Blocking.
pub(super) fn make_room(path: &Path, limits: Limits) -> Result<(), RotateError> {
    let limits = limits.at_least();
    let Some(file) = open(path)? else { return Ok(()) };
    finish(path, &file)?;
    while archive_head(path, &file, limits)? {
        finish(path, &file)?;
        prune(path, usize::from(limits.keep))?;
    }
    Ok(())
}

/// For a log that nobody writes to: a new live file beside archives says where it goes on. Where the stream ends, if that is
/// all there is to do: almost always, and a process waits to be born. Blocking.
pub(super) fn begin(path: &Path, limits: Limits) -> Result<Option<u64>, RotateError> {
    let Some(file) = open(path)? else { return Ok(None) };
    let (marks, extent) = look(path, &file)?;
    let Some(end) = marks.archives.last() else {
        return Ok((extent.end - extent.start <= limits.at_least().max_size).then_some(extent.end));
    };
    if file.metadata()?.len() == 0 {
        // As if the line stood over the last bytes that are archived.
        let header = Header { base: end.saturating_sub(header::SHORTEST), length: header::SHORTEST };
        file.write_all_at(&header.line(), 0)?;
    }
    Ok(None)
}

fn open(path: &Path) -> Result<Option<File>, RotateError> {
    match files::open_to_change(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn look(path: &Path, file: &File) -> Result<(Marks, Extent), RotateError> {
    let marks = Marks::of(path, file)?;
    let extent = marks.extent(file.metadata()?.len());
    Ok((marks, extent))
}

/// Prunes and archives, if the live file is over its limit. Whether it was.
pub(super) fn archive_head(path: &Path, file: &File, limits: Limits) -> Result<bool, RotateError> {
    let (marks, mut extent) = look(path, file)?;
    if extent.end - extent.start <= limits.max_size {
        return Ok(false);
    }
    if space::way(file).is_none() {
        return Err(RotateError::Unsupported);
    }
    if marks.is_cut_short(extent) {
        // Somebody truncated it. Nothing in it can say where it goes on, so a new stream begins.
        prune(path, 0)?;
        (_, extent) = look(path, file)?;
    } else {
        // Never the newest: it says where the live file goes on.
        prune(path, usize::from(limits.keep - 1).max(1))?;
    }
    let cut = line_end(file, extent, extent.start + limits.max_size)?;
    // What is archived must not be younger on the disk than the archive that stands for it. It also leaves little to be
    // written while the removal holds up the component's own writes.
    file.sync_data()?;
    let metadata = file.metadata()?;
    let owner = User { uid: metadata.uid(), gid: metadata.gid() };
    let length = cut - extent.start;
    files::write_whole(&archive::path(path, cut), &archive::unfinished(path), Some(owner), |whole| {
        let mut head = file;
        head.seek(SeekFrom::Start(extent.start - extent.base))?;
        let copied = io::copy(&mut head.take(length), whole)?;
        if copied < length {
            return Err(io::Error::other("the log was cut short meanwhile"));
        }
        Ok(())
    })
    .map_err(|error| RotateError::Io(error.into()))?;
    Ok(true)
}

/// Removes all but the newest `keep` archives.
fn prune(path: &Path, keep: usize) -> Result<(), RotateError> {
    let archives = archive::ends(path)?;
    for end in &archives[..archives.len().saturating_sub(keep)] {
        files::remove(&archive::path(path, *end)).map_err(io::Error::from)?;
    }
    Ok(())
}

/// Where to cut before `limit`: at the first line's end that leaves room for a header behind a removable range, so that the
/// header needs few blanks. `limit` itself, in the middle of a line, where there is none.
fn line_end(file: &File, extent: Extent, limit: u64) -> io::Result<u64> {
    let (begin, limit_here) = (extent.start - extent.base, limit - extent.base);
    let mut block = vec![0; usize::try_from(ALIGN).unwrap_or_default()];
    let mut removed = (limit_here - header::SHORTEST) / ALIGN * ALIGN;
    while removed > begin && removed + LONGEST_LINE > limit_here {
        let from = removed + header::SHORTEST - 1;
        let length = ALIGN.min(limit_here - from);
        let bytes = &mut block[..usize::try_from(length).unwrap_or_default()];
        file.read_exact_at(bytes, from)?;
        if let Some(index) = bytes.iter().position(|byte| *byte == b'\n') {
            return Ok(extent.base + from + index as u64 + 1);
        }
        removed = removed.saturating_sub(ALIGN);
    }
    Ok(limit)
}

/// Removes what is archived from the head of the live file. What a crash interrupted is done again, with the same result.
pub(super) fn finish(path: &Path, file: &File) -> Result<(), RotateError> {
    let (marks, extent) = look(path, file)?;
    if marks.archives.is_empty() {
        return Ok(());
    }
    match space::way(file) {
        Some(Way::Collapse) => {
            let Some(header) = write_header(file, extent)? else { return Ok(()) };
            if space::collapse(file, header.base - extent.base).is_err() {
                // An allocation unit larger than the usual ones (bigalloc, realtime extents).
                punch(file, &marks, extent)?;
            }
        }
        Some(Way::Punch) => punch(file, &marks, extent)?,
        None => {}
    }
    Ok(())
}

/// The header of what will be left, at its future beginning; `None` when there is nothing to remove.
pub(super) fn write_header(file: &File, extent: Extent) -> Result<Option<Header>, RotateError> {
    let dead = extent.start - extent.base;
    let removed = dead.saturating_sub(header::SHORTEST) / ALIGN * ALIGN;
    if removed == 0 {
        return Ok(None);
    }
    let header = Header { base: extent.base + removed, length: dead - removed };
    file.write_all_at(&header.line(), removed)?;
    Ok(Some(header))
}

/// Frees the archived blocks, except those of a header from when the log lay on another file system.
fn punch(file: &File, marks: &Marks, extent: Extent) -> Result<(), RotateError> {
    let from = if marks.header.is_some() { ALIGN } else { 0 };
    let to = (extent.start - extent.base) / ALIGN * ALIGN;
    let is_full = to > from && space::data_from(file, from)?.is_some_and(|data| data < to);
    if is_full {
        space::punch(file, from, to)?;
    }
    Ok(())
}
