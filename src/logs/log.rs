//! One log to read: bytes are asked for by their offset in the stream, and come from the live file or an archive.
//!
//! Everyone who remembers a place in a log remembers such an offset. No lock is taken: each read looks at the marks a
//! rotation leaves (the archives' names and the live file's header) before and after, and is repeated when they changed.
//! An archive has its name before the head of the live file is touched, so unchanged marks prove an untouched range.

use super::archive;
use super::header::Header;
use super::space;
use crate::files;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// A log by the path of its live file, which need not exist yet. All methods block.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    live: Option<Live>,
    archive: Option<Archive>,
}

/// Bytes that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Where they begin: later than asked for when older output was dropped meanwhile, and the new beginning when the log was
    /// made anew.
    pub offset: u64,
    /// 0 at the end of what was written.
    pub length: usize,
}

#[derive(Debug)]
pub(super) struct Live {
    pub(super) file: File,
    pub(super) inode: (u64, u64),
}

/// Archives never change, so an open one can be read on after its name is gone.
#[derive(Debug)]
struct Archive {
    file: File,
    start: u64,
    end: u64,
}

/// What a rotation changes, and what it has changed when it is over.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Marks {
    /// Ends of the archives, oldest first.
    pub(super) archives: Vec<u64>,
    pub(super) header: Option<Header>,
}

/// Where the live file lies in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Offset of its first byte.
    pub(super) base: u64,
    /// Where its part of the stream begins: what lies before is a header, archived, or a hole.
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Marks {
    pub(super) fn of(log: &Path, file: &File) -> io::Result<Self> {
        Ok(Self { archives: archive::ends(log)?, header: Header::read(file)? })
    }

    /// The extent of a live file of `length` bytes with these marks.
    pub(super) fn extent(&self, length: u64) -> Extent {
        let archived = self.archives.last().copied().unwrap_or(0);
        let Header { base, length: header } = self.header.unwrap_or(Header { base: 0, length: 0 });
        // A file that ends before its archives do was cut short or made anew from outside: it goes on where they end.
        if base + length < archived {
            return Extent { base: archived, start: archived, end: archived + length };
        }
        Extent { base, start: archived.max(base + header).min(base + length), end: base + length }
    }

    /// Whether `extent`, which is theirs, is that of a file which ends before its archives do.
    pub(super) fn is_cut_short(&self, extent: Extent) -> bool {
        extent.base != self.header.map_or(0, |header| header.base)
    }
}

impl Live {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self { inode: inode(&metadata), file })
    }

    /// Its extent with its marks, at one instant.
    fn extent(&self, log: &Path) -> io::Result<(Marks, Extent)> {
        loop {
            let marks = Marks::of(log, &self.file)?;
            let mut extent = marks.extent(self.file.metadata()?.len());
            if marks.archives.is_empty() && marks.header.is_none() {
                // Its archives may have been removed by hand while it keeps a hole where they belong.
                let data = space::data_from(&self.file, 0)?.map_or(extent.end, |offset| extent.base + offset);
                extent.start = extent.start.max(data).min(extent.end);
            }
            if Marks::of(log, &self.file)? == marks {
                return Ok((marks, extent));
            }
        }
    }
}

impl Log {
    /// Opens nothing yet.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned(), live: None, archive: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The offset after the last byte ever written: what the next process writes begins here.
    pub fn end(&mut self) -> io::Result<u64> {
        self.open()?;
        match &self.live {
            Some(live) => Ok(live.extent(&self.path)?.1.end),
            None => Ok(archive::ends(&self.path)?.pop().unwrap_or(0)),
        }
    }

    /// The offset of the oldest byte there is; `None` when nothing was ever written, or all of it was removed.
    pub fn first(&mut self) -> io::Result<Option<u64>> {
        self.open()?;
        loop {
            let Some(oldest) = archive::ends(&self.path)?.first().copied() else {
                return self.live.as_ref().map(|live| Ok(live.extent(&self.path)?.1.start)).transpose();
            };
            if self.open_archive(oldest)? {
                return Ok(self.archive.as_ref().map(|archive| archive.start));
            }
        }
    }

    /// Whether what was written at `offset` is still there, or the end of the log is: nothing is missing after it.
    pub fn reaches(&mut self, offset: u64) -> io::Result<bool> {
        Ok(self.first()?.is_none_or(|first| first <= offset) && offset <= self.end()?)
    }

    /// Reads on from `offset`, as much as there is at once and `buffer` takes.
    pub fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<Piece> {
        // `None`: from the beginning of a log that took the place of the one that was read.
        let mut offset = Some(offset);
        loop {
            if let Some(successor) = self.successor()? {
                // Renamed or removed from outside. What was added to it comes first.
                if let Some(old) = self.live.replace(successor)
                    && let Some(asked) = offset.take()
                {
                    let length = old.file.read_at(buffer, asked.saturating_sub(base_of(&old.file)?))?;
                    if length > 0 {
                        self.live = Some(old);
                        return Ok(Piece { offset: asked, length });
                    }
                }
            }
            let Some(live) = &self.live else { return self.read_archived(offset.unwrap_or(0), buffer) };
            let marks = Marks::of(&self.path, &live.file)?;
            let extent = marks.extent(live.file.metadata()?.len());
            let asked = offset.filter(|offset| *offset <= extent.end).unwrap_or(extent.start);
            if asked < extent.start
                && let Some(piece) = self.read_archive(&marks.archives, asked, extent.start, buffer)?
            {
                return Ok(piece);
            }
            let Some(live) = &self.live else { continue };
            let from = match asked.max(extent.start) {
                // Nothing is archived before it, so nobody knows where a hole in it ends but the file system.
                from if marks.archives.is_empty() && marks.header.is_none() => {
                    space::data_from(&live.file, from)?.unwrap_or(extent.end)
                }
                from => from,
            };
            let length = live.file.read_at(buffer, from - extent.base)?;
            if Marks::of(&self.path, &live.file)? == marks {
                return Ok(Piece { offset: from, length });
            }
        }
    }

    /// The open live file, for those who watch it.
    pub(super) fn live(&self) -> Option<&Live> {
        self.live.as_ref()
    }

    /// Lets go of a live file that was removed: an open one keeps its directory from ending.
    pub(super) fn let_go_of_removed(&mut self) -> io::Result<()> {
        if let Some(live) = &self.live
            && live.file.metadata()?.nlink() == 0
        {
            self.live = None;
            self.archive = None;
        }
        Ok(())
    }

    fn open(&mut self) -> io::Result<()> {
        if let Some(successor) = self.successor()? {
            self.live = Some(successor);
        }
        Ok(())
    }

    /// The file under the log's name, if it is not the open one.
    fn successor(&self) -> io::Result<Option<Live>> {
        let metadata = match std::fs::symlink_metadata(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            metadata => metadata?,
        };
        if self.live.as_ref().is_some_and(|live| live.inode == inode(&metadata)) {
            return Ok(None);
        }
        match files::open_to_read(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            file => Live::new(file?).map(Some),
        }
    }

    /// Reads a log that has no live file (yet).
    fn read_archived(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<Piece> {
        let archives = archive::ends(&self.path)?;
        let end = archives.last().copied().unwrap_or(0);
        Ok(self.read_archive(&archives, offset, end, buffer)?.unwrap_or(Piece { offset, length: 0 }))
    }

    /// Reads what is archived before `end`; `None` when nothing between `offset` and there is, or it went away meanwhile.
    fn read_archive(
        &mut self,
        archives: &[u64],
        offset: u64,
        end: u64,
        buffer: &mut [u8],
    ) -> io::Result<Option<Piece>> {
        let of_offset = |archive: &Archive| archive.start <= offset && offset < archive.end;
        if !self.archive.as_ref().is_some_and(of_offset) {
            let Some(next) = archives.iter().copied().find(|end| *end > offset) else { return Ok(None) };
            if next > end || !self.open_archive(next)? {
                return Ok(None);
            }
        }
        let Some(archive) = &self.archive else { return Ok(None) };
        let offset = offset.max(archive.start);
        let length = archive.file.read_at(buffer, offset - archive.start)?;
        Ok((length > 0).then_some(Piece { offset, length }))
    }

    /// Whether the archive is still there.
    fn open_archive(&mut self, end: u64) -> io::Result<bool> {
        if self.archive.as_ref().is_some_and(|archive| archive.end == end) {
            return Ok(true);
        }
        let file = match files::open_to_read(&archive::path(&self.path, end)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        let start = end.saturating_sub(file.metadata()?.len());
        self.archive = Some(Archive { file, start, end });
        Ok(true)
    }
}

fn base_of(file: &File) -> io::Result<u64> {
    Ok(Header::read(file)?.map_or(0, |header| header.base))
}

fn inode(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}
