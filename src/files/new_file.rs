//! A large file that appears whole or not at all, and replaces nothing.
//!
//! Until it is published it has no name, so whatever ends its writer, the kernel removes it. Where the file system cannot do
//! that, it has a name that the next attempt at the same file reuses.

use super::way::{Place, through};
use super::{FileError, at, sync_place};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags, linkat, openat, renameat_with};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct NewFile {
    pub file: File,
    path: PathBuf,
    place: Place,
    /// Its name until it is published, where it needs one.
    aside: Option<PathBuf>,
}

impl NewFile {
    /// Mode 0600. Refused where there is something at `path`. Blocking.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        let place = Place::of(path).map_err(at("create", path))?;
        if place.path().symlink_metadata().is_ok() {
            return Err(at("create", path)(io::ErrorKind::AlreadyExists.into()));
        }
        let mode = Mode::RUSR | Mode::WUSR;
        let flags = OFlags::WRONLY | OFlags::CLOEXEC;
        match openat(place.directory(), c".", flags | OFlags::TMPFILE, mode) {
            Ok(file) => return Ok(Self { file: file.into(), path: path.to_owned(), place, aside: None }),
            // What file systems and old kernels say that do not know nameless files.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {}
            Err(error) => return Err(at("create", path)(error.into())),
        }
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".part");
        let aside = through(place.directory()).join(name);
        let file = fresh(&aside).map_err(at("create", path))?;
        Ok(Self { file, path: path.to_owned(), place, aside: Some(aside) })
    }

    /// Gives it its name, durably. Blocking.
    pub fn publish(mut self) -> Result<(), FileError> {
        let path = self.path.clone();
        self.file.sync_all().map_err(at("sync", &path))?;
        let named = match self.aside.take() {
            Some(aside) => {
                let renamed = renameat_with(CWD, &aside, CWD, self.place.path(), RenameFlags::NOREPLACE);
                if renamed.is_err() {
                    self.aside = Some(aside);
                }
                renamed
            }
            None => {
                let open = format!("/proc/self/fd/{}", self.file.as_raw_fd());
                linkat(CWD, open, CWD, self.place.path(), AtFlags::SYMLINK_FOLLOW)
            }
        };
        named.map_err(|error| at("create", &path)(error.into()))?;
        sync_place(&self.place, &path)
    }
}

/// Of nobody else's making: what has that name was left by an earlier attempt, or planted by whoever would have the mode, or a
/// second name, of what is written there.
fn fresh(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL;
    Ok(openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?.into())
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(aside) = &self.aside {
            let _ = std::fs::remove_file(aside);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn it_appears_when_it_is_published_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("demo.backup");
        let mut new = NewFile::create(&path).unwrap();
        new.file.write_all(b"whole").unwrap();
        assert!(!path.exists());
        new.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_has_the_name_aside_is_not_written_to_but_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (aside, planted) = (dir.path().join(".demo.backup.part"), dir.path().join("planted"));
        super::super::write_atomic(&planted, b"theirs", None).unwrap();
        fs::set_permissions(&planted, fs::Permissions::from_mode(0o666)).unwrap();
        fs::hard_link(&planted, &aside).unwrap();
        fresh(&aside).unwrap().write_all(b"keys").unwrap();
        assert_eq!(fs::read(&planted).unwrap(), b"theirs");
        assert_eq!(fs::metadata(&aside).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_file(&aside).unwrap();
        std::os::unix::fs::symlink(&planted, &aside).unwrap();
        fresh(&aside).unwrap().write_all(b"keys").unwrap();
        assert_eq!(fs::read(&planted).unwrap(), b"theirs");
    }

    #[test]
    fn what_is_there_is_never_replaced_and_what_is_dropped_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("demo.backup");
        drop(NewFile::create(&path).unwrap());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        let late = NewFile::create(&path).unwrap();
        NewFile::create(&path).unwrap().publish().unwrap();
        assert!(late.publish().is_err());
        assert!(NewFile::create(&path).unwrap_err().to_string().contains("exists"));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
