//! Names that go away or change, and lists of them, each by the directory that was walked to: see [`super::way`].

use super::way::{self, Place};
use super::{FileError, at, sync_place};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::fs::{self, ReadDir};
use std::io;
use std::path::Path;

/// Removes a file, a link or a socket; one that is not there is no failure. Blocking.
pub(crate) fn remove(path: &Path) -> Result<(), FileError> {
    absent_is_fine(Place::of(path).and_then(|place| fs::remove_file(place.path())))
        .map_err(at("remove", path))
}

/// Removes a directory and all below it, if it is there; no link in it is followed. Blocking.
pub(crate) fn remove_tree(dir: &Path) -> Result<(), FileError> {
    absent_is_fine(Place::of(dir).and_then(|place| fs::remove_dir_all(place.path())))
        .map_err(at("remove", dir))
}

fn absent_is_fine(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

/// Gives `from` the name `to`, durably. Blocking.
pub(crate) fn rename(from: &Path, to: &Path) -> Result<(), FileError> {
    let here = Place::of(from).map_err(at("rename", from))?;
    let there = Place::of(to).map_err(at("rename onto", to))?;
    fs::rename(here.path(), there.path()).map_err(at("rename onto", to))?;
    sync_place(&there, to)
}

/// Opens a directory to list it. Blocking.
pub(crate) fn open_list(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(way::directory(dir)?, c".", flags, Mode::empty())?)
}

/// What is in a directory. The entries' paths are good for nothing once this was read: ask for their names. Blocking.
pub(crate) fn list(dir: &Path) -> io::Result<ReadDir> {
    let directory = way::directory(dir)?;
    fs::read_dir(way::through(&directory))
}
