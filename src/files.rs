//! Files that survive a crash: written aside, synced, renamed, and the directory synced after them.
//!
//! Everyone who writes state calls this; nobody else calls `rename`. A reader sees the old file or the new one, whole.

use berth_actors::spec::User;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// What went wrong with which file.
#[derive(Debug, thiserror::Error)]
#[error("{action} {path}: {source}")]
pub struct FileError {
    pub action: &'static str,
    pub path: PathBuf,
    #[source]
    pub source: io::Error,
}

fn at<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FileError + 'a {
    move |source| FileError { action, path: path.to_owned(), source }
}

/// Replaces `path` with `bytes`, mode 0600, owned by `owner` where given (the daemon is root then). Blocking.
pub fn write_atomic(path: &Path, bytes: &[u8], owner: Option<User>) -> Result<(), FileError> {
    let parent = directory_of(path);
    let mut temp = tempfile::Builder::new()
        .prefix(".berth-")
        .permissions(fs::Permissions::from_mode(0o600))
        .tempfile_in(parent)
        .map_err(at("create a temporary file beside", path))?;
    temp.write_all(bytes).map_err(at("write", path))?;
    if let Some(user) = owner {
        chown(temp.path(), Some(user.uid), Some(user.gid)).map_err(at("change the owner of", path))?;
    }
    temp.as_file().sync_all().map_err(at("sync", path))?;
    temp.persist(path).map_err(|error| at("rename onto", path)(error.error))?;
    sync_dir(parent)
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
    fs::File::open(dir).and_then(|handle| handle.sync_all()).map_err(at("sync the directory", dir))
}

/// Creates `dir` and its missing parents with mode 0700, then gives `dir` itself to `owner`. Blocking.
pub fn private_dir(dir: &Path, owner: Option<User>) -> Result<(), FileError> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(at("create the directory", dir))?;
    if let Some(user) = owner {
        chown(dir, Some(user.uid), Some(user.gid)).map_err(at("change the owner of", dir))?;
    }
    Ok(())
}

/// Reads a file that may be absent. Blocking.
pub fn read_optional(path: &Path) -> Result<Option<Vec<u8>>, FileError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(at("read", path)(error)),
    }
}

/// Opens a log for appending, mode 0600, owned by `owner`. Blocking.
pub fn open_log(path: &Path, owner: Option<User>) -> Result<fs::File, FileError> {
    let file = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(at("open the log", path))?;
    if let Some(user) = owner {
        chown(path, Some(user.uid), Some(user.gid)).map_err(at("change the owner of", path))?;
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
