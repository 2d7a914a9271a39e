//! The way to a file, walked with care: a root daemon works below directories that a component may replace by links.
//!
//! A link on the way is followed only where root or the daemon's own account made it: an operator's, who put the state
//! somewhere else, but no component's. What was walked to is held open, so nothing can be put in its place afterwards.

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

/// As many as the kernel follows.
const MOST_LINKS: u32 = 40;

const LOOK: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// A name in a directory that is held open.
#[derive(Debug)]
pub(super) struct Place {
    directory: OwnedFd,
    through: PathBuf,
}

impl Place {
    /// Where `path` is or would be: its last part may be a link, and is not looked at.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        // Without a last part it is a directory that has no name to replace, such as `/`.
        let (parent, name) = match path.file_name() {
            Some(name) => (super::directory_of(path), name.to_owned()),
            None => (path, OsString::from(".")),
        };
        let directory = directory(parent)?;
        let through = through(&directory).join(name);
        Ok(Self { directory, through })
    }

    /// For calls that take a path: it leads through the open directory, whatever lies on the way to it by now. Good as long as
    /// this lives.
    pub(super) fn path(&self) -> &Path {
        &self.through
    }

    pub(super) fn directory(&self) -> &OwnedFd {
        &self.directory
    }
}

/// The path that leads through an open directory.
pub(super) fn through(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}

/// Opens a directory to work in, not to list it.
pub(super) fn directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = LOOK | OFlags::DIRECTORY;
    // One call where there is no link; before Linux 5.6, and in some sandboxes, there is no such call.
    match openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        Ok(directory) => Ok(directory),
        Err(_) => walk(path, |owner| owner == 0 || owner == rustix::process::geteuid().as_raw()),
    }
}

fn walk(path: &Path, is_trusted: impl Fn(u32) -> bool) -> io::Result<OwnedFd> {
    let mut here = openat(CWD, c".", LOOK | OFlags::DIRECTORY, Mode::empty())?;
    let mut ahead = parts(path);
    let mut links = 0;
    while let Some(part) = ahead.pop() {
        let next = openat(&here, &part, LOOK | OFlags::NOFOLLOW, Mode::empty())?;
        let stat = fstat(&next)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            here = next;
            continue;
        }
        if !is_trusted(stat.st_uid) {
            return Err(io::Error::other(format!(
                "{} on the way to it is a link of uid {}, which is not followed: remove it",
                Path::new(&part).display(),
                stat.st_uid
            )));
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(rustix::io::Errno::LOOP.into());
        }
        let target = readlinkat(&next, c"", Vec::new())?.into_bytes();
        ahead.extend(parts(Path::new(&OsString::from_vec(target))));
    }
    // It must be a directory even where nothing came after it.
    Ok(openat(&here, c".", LOOK | OFlags::DIRECTORY, Mode::empty())?)
}

/// The last one first.
fn parts(path: &Path) -> Vec<OsString> {
    path.components().rev().map(|part: Component<'_>| part.as_os_str().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, lchown, symlink};

    fn is_same(directory: &OwnedFd, path: &Path) -> bool {
        fstat(directory).unwrap().st_ino == fs::metadata(path).unwrap().ino()
    }

    #[test]
    fn links_of_the_daemons_own_account_are_followed_wherever_they_lead() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("disk/state/pki")).unwrap();
        symlink(at("disk/state"), at("state")).unwrap();
        symlink("../state/pki", at("disk/back")).unwrap();
        symlink("round", at("round")).unwrap();
        for path in ["state/pki", "state/pki/..", "disk/back/.", "disk/state/../back"] {
            assert!(is_same(&directory(&at(path)).unwrap(), &at(path)), "{path}");
        }
        assert!(is_same(&directory(Path::new(".")).unwrap(), Path::new(".")));
        assert!(is_same(&directory(Path::new("/")).unwrap(), Path::new("/")));
        let refused = |path: &str| directory(&at(path)).unwrap_err().raw_os_error();
        assert_eq!(refused("round"), Some(libc::ELOOP));
        assert_eq!(refused("absent/pki"), Some(libc::ENOENT));
        fs::File::create(at("file")).unwrap();
        assert_eq!(refused("file"), Some(libc::ENOTDIR));
    }

    #[test]
    fn links_of_anybody_else_are_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("other/pki")).unwrap();
        symlink("other/pki", dir.path().join("pki")).unwrap();
        let refused = walk(&dir.path().join("pki"), |_| false).unwrap_err().to_string();
        assert!(refused.starts_with("pki on the way to it is a link of uid"), "{refused}");
        assert!(walk(&dir.path().join("other/pki"), |_| false).is_ok());
        if rustix::process::geteuid().is_root() {
            lchown(dir.path().join("pki"), Some(65_534), Some(65_534)).unwrap();
            assert!(directory(&dir.path().join("pki")).is_err());
        }
    }

    #[test]
    fn a_place_stays_where_it_was_when_its_directory_is_replaced_by_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir(at("pki")).unwrap();
        fs::create_dir(at("other")).unwrap();
        let place = Place::of(&at("pki/admin.key")).unwrap();
        fs::rename(at("pki"), at("moved")).unwrap();
        symlink(at("other"), at("pki")).unwrap();
        fs::File::create(place.path()).unwrap();
        assert!(at("moved/admin.key").exists() && !at("other/admin.key").exists());
    }
}
