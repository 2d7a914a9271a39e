//! How the file system gives up the head of a file that somebody appends to. The writer's descriptor is not touched: an
//! O_APPEND write goes to the end of the file, wherever that is by then.
//!
//! Called by a rotation, on bytes that are archived. Both calls take the inode's lock in ext4 and xfs, as every append
//! does, so no write falls in between.

use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::fs::File;
use std::io;

/// A removed range must be a multiple of the file system's block. This is one of every block size up to the largest a
/// page can have, and of the usual bigalloc cluster.
pub(super) const ALIGN: u64 = 64 << 10;
/// Beyond the end of any file: asking here tells what is supported and changes nothing.
const NOWHERE: u64 = 1 << 42;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// What follows moves to the front (ext4, xfs).
    Collapse,
    /// The offsets stay, the blocks are freed (tmpfs, btrfs and others).
    Punch,
}

/// What the file system of `file` can do; `None` when nothing is supported.
pub(super) fn way(file: &File) -> Option<Way> {
    // It refuses the range, not the request.
    if let Err(Errno::INVAL) = fallocate(file, FallocateFlags::COLLAPSE_RANGE, NOWHERE, ALIGN) {
        return Some(Way::Collapse);
    }
    punch(file, NOWHERE, NOWHERE + ALIGN).is_ok().then_some(Way::Punch)
}

/// Removes the first `length` bytes, a multiple of [`ALIGN`] that does not reach the end of the file.
pub(super) fn collapse(file: &File, length: u64) -> io::Result<()> {
    Ok(fallocate(file, FallocateFlags::COLLAPSE_RANGE, 0, length)?)
}

/// Frees the blocks of `from..to`.
pub(super) fn punch(file: &File, from: u64, to: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    Ok(fallocate(file, flags, from, to.saturating_sub(from))?)
}

/// Where the first bytes that are not a hole begin, at or after `from`; `None` when there are none.
pub(super) fn data_from(file: &File, from: u64) -> io::Result<Option<u64>> {
    match seek(file, SeekFrom::Data(from)) {
        Ok(offset) => Ok(Some(offset)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
