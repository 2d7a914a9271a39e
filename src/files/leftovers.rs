//! What a daemon that was killed in the middle of a write left aside: removed by the next one, before it writes itself.
//!
//! Whoever takes the state directory's lock calls [`sweep`]. A leftover may hold a secret, so it must not stay; the file it
//! was to replace is whole. Components' own data is never entered, and no link is followed: a directory is only ever
//! reached through the open one above it.

use super::{ASIDE, FileError, at};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::io;
use std::path::Path;

/// Directories that hold no file of Berth's own writing, and many of others'.
const NOT_OURS: [&[u8]; 3] = [b"pg", b"pg.new", b"assets"];

/// Removes every leftover below `dir`; returns how many there were. Blocking, and only while no other daemon writes here.
pub(crate) fn sweep(dir: &Path) -> Result<usize, FileError> {
    let swept = open(CWD, dir).and_then(|dir| clear(&dir, false));
    swept.map_err(|errno| at("remove what a killed daemon left in", dir)(io::Error::from(errno)))
}

/// Removes the leftovers of one directory and those below it, or everything in it.
fn clear(dir: &OwnedFd, everything: bool) -> rustix::io::Result<usize> {
    let mut removed = 0;
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let (name, is_dir) = (entry.file_name(), entry.file_type() == FileType::Directory);
        if [b".".as_slice(), b".."].contains(&name.to_bytes()) {
            continue;
        }
        let goes = everything || name.to_bytes().starts_with(ASIDE.as_bytes());
        if is_dir && (goes || !NOT_OURS.contains(&name.to_bytes())) {
            match open(dir, name) {
                Ok(below) => removed += clear(&below, goes)?,
                // A component removed it, or put a link there, meanwhile.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(error) => return Err(error),
            }
        }
        if goes {
            remove(dir, name, is_dir)?;
            removed += 1;
        }
    }
    Ok(removed)
}

fn open(parent: impl AsFd, name: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}

fn remove(dir: &OwnedFd, name: &CStr, is_dir: bool) -> rustix::io::Result<()> {
    match unlinkat(dir, name, if is_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() }) {
        Err(Errno::NOENT) => Ok(()),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn leftovers_go_wherever_they_lie_and_nothing_else_does() {
        let state = tempfile::tempdir().unwrap();
        let file = |path: &str| {
            let path = state.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::File::create(&path).unwrap();
            path
        };
        let leftovers = [".berth-1", "ledger/.berth-2", "clusters/demo/pki/.berth-3", "kcp/.berth-4/sa.key"];
        let kept = ["ports.json", "clusters/demo/pki/ca.key", "clusters/demo/pg/.berth-not-ours"];
        let (leftovers, kept) = (leftovers.map(file), kept.map(file));
        let elsewhere = tempfile::tempdir().unwrap();
        let beyond = elsewhere.path().join(".berth-5");
        fs::File::create(&beyond).unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), state.path().join("clusters/link")).unwrap();

        assert_eq!(sweep(state.path()).unwrap(), 5, "four files, and the directory of one");
        assert!(leftovers.iter().all(|path| !path.exists()));
        assert!(kept.iter().all(|path| path.exists()) && beyond.exists());
        assert_eq!(sweep(state.path()).unwrap(), 0);
    }
}
