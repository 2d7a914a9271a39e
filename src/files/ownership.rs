//! A tree of files that changes hands: after initdb, which runs as another account, and for a cluster that gets a uid.
//!
//! Nobody works in the tree meanwhile, but whoever did may have prepared it: no link is followed, no other file system is
//! entered, and nothing changes hands whose owner was not told of, or that has a second name elsewhere.

use super::way::Place;
use super::{FileError, at};
use berth_actors::spec::User;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, Uid};
use std::ffi::CString;
use std::io;
use std::path::Path;

/// How a tree changed hands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Given {
    /// Entries that have the new owner now.
    pub(crate) changed: u64,
    /// Entries that stay somebody else's, but for root's: the daemon keeps some of its own among them.
    pub(crate) left: u64,
}

/// Gives `top` and all below it to `to`, as far as it is one of `from`; durable before it returns. What it did before it was cut
/// short stays done, and the next call does the rest. Blocking.
pub(crate) fn give_tree(top: &Path, from: impl Fn(u32) -> bool, to: User) -> Result<Given, FileError> {
    give(top, &from, to).map_err(at("change the owner of everything in", top))
}

fn give(top: &Path, from: &dyn Fn(u32) -> bool, to: User) -> io::Result<Given> {
    let place = Place::of(top)?;
    let top = place.path();
    let root = rustix::fs::open(top, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let device = rustix::fs::fstat(&root)?.st_dev;
    let mut given = Given::default();
    let mut pending = vec![root];
    while let Some(entry) = pending.pop() {
        let stat = rustix::fs::fstat(&entry)?;
        if stat.st_dev != device {
            given.left += 1;
            continue;
        }
        change(&entry, &stat, from, to, &mut given)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            for name in names(&entry)? {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                match rustix::fs::openat(&entry, name.as_c_str(), flags, Mode::empty()) {
                    // A directory is looked into later; everything else is done at once, and holds no descriptor.
                    Ok(child) => {
                        let stat = rustix::fs::fstat(&child)?;
                        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
                            pending.push(child);
                        } else {
                            change(&child, &stat, from, to, &mut given)?;
                        }
                    }
                    Err(rustix::io::Errno::NOENT) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
    }
    let top = rustix::fs::open(top, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::syncfs(top)?;
    Ok(given)
}

fn names(directory: &OwnedFd) -> io::Result<Vec<CString>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(directory, c".", flags, Mode::empty())?;
    let mut names = Vec::new();
    for entry in Dir::new(opened)? {
        let entry = entry?;
        if ![c".", c".."].contains(&entry.file_name()) {
            names.push(entry.file_name().to_owned());
        }
    }
    Ok(names)
}

/// The descriptor is of what was looked at, so nothing can be put in its place in between.
fn change(
    entry: impl AsFd,
    stat: &Stat,
    from: &dyn Fn(u32) -> bool,
    to: User,
    given: &mut Given,
) -> io::Result<()> {
    if (stat.st_uid, stat.st_gid) == (to.uid, to.gid) {
        return Ok(());
    }
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    // A cut between the two halves of a change cannot be: one call sets both.
    if !from(stat.st_uid) || (!is_directory && stat.st_nlink > 1) {
        given.left += u64::from(stat.st_uid != 0);
        return Ok(());
    }
    let (uid, gid) = (Uid::from_raw(to.uid), Gid::from_raw(to.gid));
    rustix::fs::chownat(entry, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
    given.changed += 1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, chown, lchown, symlink};

    const OLD: u32 = 65_534;
    const NEW: User = User { uid: 3_000_001, gid: 3_000_001 };

    #[test]
    fn all_of_the_old_owner_changes_hands_and_nothing_that_only_looks_like_it() {
        if !rustix::process::geteuid().is_root() {
            return crate::testing::not_exercised("a tree that changes hands: only root may give files away");
        }
        let dir = tempfile::tempdir().unwrap();
        let [tree, outside] = ["tree", "outside"].map(|name| dir.path().join(name));
        fs::create_dir_all(tree.join("pg/base/1")).unwrap();
        for name in ["pg/PG_VERSION", "pg/base/1/2", "roots", "twice"] {
            fs::File::create(tree.join(name)).unwrap();
        }
        fs::File::create(&outside).unwrap();
        fs::hard_link(tree.join("twice"), dir.path().join("second name")).unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        for name in ["", "pg", "pg/base", "pg/base/1", "pg/PG_VERSION", "twice", "link"] {
            lchown(tree.join(name), Some(OLD), Some(OLD)).unwrap();
        }
        chown(&outside, Some(OLD), Some(OLD)).unwrap();
        // As a daemon that was killed midway left it.
        chown(tree.join("pg/base/1/2"), Some(NEW.uid), Some(NEW.gid)).unwrap();

        let given = give_tree(&tree, |uid| uid == OLD, NEW).unwrap();
        assert_eq!(given, Given { changed: 6, left: 1 });
        let owner = |name: &str| tree.join(name).symlink_metadata().unwrap().uid();
        for name in ["", "pg", "pg/base/1", "pg/base/1/2", "pg/PG_VERSION", "link"] {
            assert_eq!(owner(name), NEW.uid, "{name}");
        }
        assert_eq!((owner("roots"), owner("twice")), (0, OLD));
        assert_eq!(outside.metadata().unwrap().uid(), OLD, "what a link points to is none of its business");
        assert_eq!(give_tree(&tree, |uid| uid == OLD, NEW).unwrap(), Given { changed: 0, left: 1 });
    }

    #[test]
    fn a_tree_that_is_not_there_is_told_by_name() {
        let error = give_tree(Path::new("/no/such/tree"), |_| true, NEW).unwrap_err().to_string();
        assert!(error.contains("/no/such/tree"), "{error}");
    }
}
