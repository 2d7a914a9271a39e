//! Files that survive a crash: written aside, synced, renamed, and the directory synced after them.
//!
//! Everyone who writes state calls this; nobody else calls `rename`. A reader sees the old file or the new one, whole.
//!
//! A root daemon works in directories that belong to the components' account. So nothing here follows a link in the last
//! place of a path or a component's on the way there, waits for a pipe, or changes the owner of anything but what it has open.

mod leftovers;
mod new_file;
mod ownership;
mod removal;
pub(crate) mod trusted;
mod way;

pub(crate) use leftovers::sweep;
pub use new_file::NewFile;
pub(crate) use ownership::give_tree;
pub(crate) use removal::{list, open_list, remove, remove_tree, rename};

use crate::fault;
use berth_actors::spec::User;
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use way::Place;

/// How the name of a file begins that is not in its place yet.
pub(crate) const ASIDE: &str = ".berth-";

/// What went wrong with which file.
#[derive(Debug, thiserror::Error)]
#[error("{action} {path}: {source}")]
pub struct FileError {
    pub action: &'static str,
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

impl From<FileError> for io::Error {
    fn from(error: FileError) -> Self {
        Self::new(error.source.kind(), error)
    }
}

fn at<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FileError + 'a {
    move |source| FileError { action, path: path.to_owned(), source }
}

/// Replaces `path` with `bytes`, mode 0600, owned by `owner` where given (the daemon is root then). Blocking.
pub fn write_atomic(path: &Path, bytes: &[u8], owner: Option<User>) -> Result<(), FileError> {
    let place = Place::of(path).map_err(at("create a temporary file beside", path))?;
    let mut temp = tempfile::Builder::new()
        .prefix(ASIDE)
        .permissions(fs::Permissions::from_mode(0o600))
        .tempfile_in(way::through(place.directory()))
        .map_err(at("create a temporary file beside", path))?;
    fault::storage("file-created").map_err(at("write", path))?;
    temp.write_all(bytes).map_err(at("write", path))?;
    fault::point("file-written");
    if let Some(user) = owner {
        fchown(temp.as_file(), Some(user.uid), Some(user.gid)).map_err(at("change the owner of", path))?;
    }
    fault::storage("file-syncing").map_err(at("sync", path))?;
    temp.as_file().sync_all().map_err(at("sync", path))?;
    fault::point("file-synced");
    temp.persist(place.path()).map_err(|error| at("rename onto", path)(error.error))?;
    fault::point("file-renamed");
    sync_place(&place, path)
}

/// Creates `path` with what `fill` writes, whole or not at all, mode 0600. It is made under the name `aside` in the same directory:
/// all that a crash can leave, and replaced by the next call. For files too large for [`write_atomic`]. Blocking.
pub fn write_whole(
    path: &Path,
    aside: &Path,
    owner: Option<User>,
    fill: impl FnOnce(&mut fs::File) -> io::Result<()>,
) -> Result<(), FileError> {
    remove(aside)?;
    let made = || {
        let mut options = fs::OpenOptions::new();
        let mut file = open_plain(options.write(true).create_new(true).mode(0o600), aside)?;
        if let Some(user) = owner {
            fchown(&file, Some(user.uid), Some(user.gid))?;
        }
        fill(&mut file)?;
        file.sync_all()
    };
    if let Err(error) = made() {
        // What is left of it may be what fills the disk.
        let _ = remove(aside);
        return Err(at("write", path)(error));
    }
    rename(aside, path)
}

/// A bare file name lies in the current directory.
fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes a rename or removal inside `dir` durable. Blocking.
pub fn sync_dir(dir: &Path) -> Result<(), FileError> {
    way::directory(dir).and_then(|dir| sync(&dir)).map_err(at("sync the directory", dir))
}

fn sync_place(place: &Place, path: &Path) -> Result<(), FileError> {
    sync(place.directory()).map_err(at("sync the directory of", path))
}

fn sync(directory: &OwnedFd) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = rustix::fs::openat(directory, c".", flags, rustix::fs::Mode::empty())?;
    Ok(rustix::fs::fsync(open)?)
}

/// Creates `dir` and its missing parents with mode 0700, then gives `dir` itself to `owner`. Blocking.
pub fn private_dir(dir: &Path, owner: Option<User>) -> Result<(), FileError> {
    make_dir(dir).map_err(at("create the directory", dir))?;
    let handle = open_dir(dir).map_err(at("open the directory", dir))?;
    if let Some(user) = owner {
        fchown(handle, Some(user.uid), Some(user.gid)).map_err(at("change the owner of", dir))?;
    }
    Ok(())
}

/// Makes it and what is missing above it, each in a directory that is held.
fn make_dir(dir: &Path) -> io::Result<()> {
    let place = match Place::of(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_dir(directory_of(dir))?;
            Place::of(dir)?
        }
        place => place?,
    };
    match fs::DirBuilder::new().mode(0o700).create(place.path()) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

/// Takes a directory's access from everyone but its owner. Blocking.
pub fn make_private(dir: &Path) -> Result<(), FileError> {
    open_dir(dir)
        .and_then(|handle| handle.set_permissions(fs::Permissions::from_mode(0o700)))
        .map_err(at("set the mode of", dir))
}

fn open_dir(dir: &Path) -> io::Result<fs::File> {
    let place = Place::of(dir)?;
    fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags(OFlags::DIRECTORY | OFlags::NOFOLLOW))
        .open(place.path())
}

fn flags(flags: OFlags) -> i32 {
    flags.bits().cast_signed()
}

/// Opens what must be a plain file under one name.
fn open_plain(options: &mut fs::OpenOptions, path: &Path) -> io::Result<fs::File> {
    let place = Place::of(path)?;
    let file = options.custom_flags(flags(OFlags::NOFOLLOW | OFlags::NONBLOCK)).open(place.path())?;
    let meta = file.metadata()?;
    if !meta.is_file() || meta.nlink() > 1 {
        return Err(io::Error::other("it is not a plain file of one name"));
    }
    Ok(file)
}

/// Opens a plain file to read it. Blocking.
pub fn open_to_read(path: &Path) -> io::Result<fs::File> {
    open_plain(fs::OpenOptions::new().read(true), path)
}

/// Opens a plain file to change it in place, where it is: only a log is, while its component writes to it. Blocking.
pub fn open_to_change(path: &Path) -> io::Result<fs::File> {
    open_plain(fs::OpenOptions::new().read(true).write(true), path)
}

/// State files are small. What is larger was not written by Berth, and must not fill its memory.
const LARGEST: u64 = 16 << 20;

/// Reads a file. Blocking.
pub fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let failed = at("read", path);
    let read = || {
        let mut bytes = Vec::new();
        open_plain(fs::OpenOptions::new().read(true), path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LARGEST {
            return Err(io::Error::other(format!("it is larger than {} MiB", LARGEST >> 20)));
        }
        Ok(bytes)
    };
    read().map_err(failed)
}

/// Reads a file of text. Blocking.
pub fn read_text(path: &Path) -> Result<String, FileError> {
    String::from_utf8(read(path)?).map_err(|_| at("read", path)(io::Error::other("it is no text")))
}

/// Reads a file that may be absent. Blocking.
pub fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    match read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a log for appending, mode 0600, owned by `owner`. Blocking.
pub fn open_log(path: &Path, owner: Option<User>) -> Result<fs::File, FileError> {
    let file = open_plain(fs::OpenOptions::new().create(true).append(true).mode(0o600), path)
        .map_err(at("open the log", path))?;
    if let Some(user) = owner {
        fchown(&file, Some(user.uid), Some(user.gid)).map_err(at("change the owner of", path))?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_file_name_lies_in_the_current_directory() {
        assert_eq!(directory_of(Path::new("demo.kubeconfig")), Path::new("."));
        assert_eq!(directory_of(Path::new("a/demo.kubeconfig")), Path::new("a"));
    }

    #[test]
    fn a_planted_link_or_pipe_is_never_opened_followed_or_given_away() {
        let dir = tempfile::tempdir().unwrap();
        let (target, link) = (dir.path().join("shadow"), dir.path().join("kine.log"));
        fs::File::create(&target).unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(open_log(&link, None).is_err() && read(&link).is_err());
        assert!(read_optional(&link).is_err(), "a link is not an absent file");
        fs::remove_file(&link).unwrap();
        fs::hard_link(&target, &link).unwrap();
        assert!(open_log(&link, None).is_err(), "a second name of another file");
        let (real, linked) = (dir.path().join("etc"), dir.path().join("log"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &linked).unwrap();
        assert!(private_dir(&linked, None).is_err() && make_private(&linked).is_err());
        let pipe = dir.path().join("nodes.json");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
        assert!(read(&pipe).is_err(), "and nobody waits for its writer");
    }

    #[test]
    fn a_directory_that_a_component_replaced_by_a_link_leads_to_nothing_of_another() {
        if !rustix::process::geteuid().is_root() {
            return crate::testing::not_exercised("links of another account: only root can make some");
        }
        let state = tempfile::tempdir().unwrap();
        let at = |path: &str| state.path().join(path);
        for dir in ["other/pki", "other/log", "demo"] {
            private_dir(&at(dir), None).unwrap();
        }
        for file in ["other/pki/admin.key", "other/log/kine.log"] {
            write_atomic(&at(file), b"theirs", None).unwrap();
        }
        for name in ["pki", "log"] {
            std::os::unix::fs::symlink(at("other").join(name), at("demo").join(name)).unwrap();
            std::os::unix::fs::lchown(at("demo").join(name), Some(65_534), Some(65_534)).unwrap();
        }
        let mine = Some(User { uid: 65_534, gid: 65_534 });
        let (key, log, made) = (at("demo/pki/admin.key"), at("demo/log/kine.log"), at("demo/pki/made"));
        let refused = [
            read(&key).err(),
            read_optional(&key).err(),
            open_log(&log, mine).err(),
            write_atomic(&key, b"mine", mine).err(),
            write_whole(&made, &at("demo/pki/aside"), mine, |_| Ok(())).err(),
            private_dir(&made, mine).err(),
            remove(&key).err(),
            remove_tree(&made).err(),
            rename(&key, &at("demo/key")).err(),
            rename(&at("other/pki/admin.key"), &made).err(),
            sync_dir(&at("demo/pki")).err(),
            NewFile::create(&made).err(),
            give_tree(&key, |_| true, User { uid: 65_534, gid: 65_534 }).err(),
        ];
        for (turn, refused) in refused.into_iter().enumerate() {
            let refused = refused.unwrap_or_else(|| panic!("{turn} was let through")).to_string();
            assert!(refused.contains("is a link of uid 65534"), "{turn}: {refused}");
        }
        assert!(open_to_change(&log).is_err() && open_to_read(&log).is_err());
        assert!(list(&at("demo/pki")).is_err() && open_list(&at("demo/log")).is_err());
        remove_tree(&at("demo")).unwrap();
        for file in ["other/pki/admin.key", "other/log/kine.log"] {
            assert_eq!(
                (read(&at(file)).unwrap(), at(file).metadata().unwrap().uid()),
                (b"theirs".to_vec(), 0)
            );
        }
    }

    #[test]
    fn a_file_is_replaced_whole_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        write_atomic(&path, b"old and longer", None).unwrap();
        write_atomic(&path, b"new", None).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left aside");
    }
}
