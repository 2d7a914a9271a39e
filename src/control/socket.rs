//! The listening end of the control socket: made with its mode, replacing what a dead daemon left, never a live one.

use super::server::ControlError;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};
use tokio::net::UnixListener;

/// Connections that wait to be accepted; a CLI in a loop is the most that ever comes.
const BACKLOG: i32 = 64;

/// The socket file, removed on drop if it is still the one that was made.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    inode: (u64, u64),
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if inode(&self.path).is_ok_and(|now| now == self.inode) {
            // Nothing to do about a failure: the next daemon replaces a stale socket.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Binds `path` with mode 0600. The caller holds the state directory's lock, so no second daemon is in here as well.
/// Must run inside a tokio runtime. Blocks for a few local system calls only.
pub(super) fn bind(path: &Path) -> Result<(UnixListener, SocketFile), ControlError> {
    let at = |source: io::Error| ControlError::Bind { path: path.to_owned(), source };
    check_directory(path)?;
    clear_stale(path)?;

    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|e| at(e.into()))?;
    // Linux creates the file with the socket's own mode, so there is no moment at which it is open to others.
    rustix::fs::fchmod(&socket, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).map_err(|e| at(e.into()))?;
    let address = SocketAddrUnix::new(path).map_err(|e| at(e.into()))?;
    rustix::net::bind(&socket, &address).map_err(|e| at(e.into()))?;
    rustix::net::listen(&socket, BACKLOG).map_err(|e| at(e.into()))?;
    let listener = UnixListener::from_std(StdListener::from(socket)).map_err(at)?;
    let file = SocketFile { path: path.to_owned(), inode: inode(path).map_err(at)? };
    Ok((listener, file))
}

/// Whoever can write to the directory can replace the socket.
fn check_directory(path: &Path) -> Result<(), ControlError> {
    let dir = path.parent().unwrap_or(Path::new("/"));
    let metadata =
        std::fs::metadata(dir).map_err(|source| ControlError::Bind { path: path.to_owned(), source })?;
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own || metadata.mode() & 0o022 != 0 {
        return Err(ControlError::SharedDirectory {
            dir: dir.to_owned(),
            owner: metadata.uid(),
            mode: metadata.mode() & 0o7777,
        });
    }
    Ok(())
}

fn clear_stale(path: &Path) -> Result<(), ControlError> {
    let at = |source: io::Error| ControlError::Bind { path: path.to_owned(), source };
    let metadata = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(at)?,
    };
    if !metadata.file_type().is_socket() {
        return Err(ControlError::NotASocket { path: path.to_owned() });
    }
    match StdStream::connect(path) {
        Ok(_) => Err(ControlError::InUse { path: path.to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).map_err(at)
        }
        Err(error) => Err(at(error)),
    }
}

fn inode(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|metadata| (metadata.dev(), metadata.ino()))
}
