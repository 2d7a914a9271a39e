//! The way into a database: the socket of its own postgres, and nobody else's.
//!
//! The socket lies in a directory of the account that its postgres runs as, and that account may put a link to another cluster's
//! socket there. The daemon is a superuser to each of them, so it asks the kernel who listens before it says a word.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use tokio::net::UnixStream;

/// Berth's databases have no port; their sockets are named for the default one.
const NAME: &str = ".s.PGSQL.5432";

#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    #[error("connect to {path}: {source}")]
    Connect { path: PathBuf, source: io::Error },
    #[error(
        "on {path} listens uid {found}, and the directory belongs to uid {owner}: a component may have put a link to another cluster's socket there; remove it"
    )]
    Stranger { path: PathBuf, owner: u32, found: u32 },
}

/// Connects to the postgres whose socket directory `sockets` is.
pub(crate) async fn open(sockets: &Path) -> Result<UnixStream, SocketError> {
    let path = sockets.join(NAME);
    let failed = |source| SocketError::Connect { path: path.clone(), source };
    let stream = UnixStream::connect(&path).await.map_err(failed)?;
    let owner = tokio::fs::symlink_metadata(sockets).await.map_err(failed)?.uid();
    let found = stream.peer_cred().map_err(failed)?.uid();
    if found == owner { Ok(stream) } else { Err(SocketError::Stranger { path, owner, found }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{chown, symlink};
    use tokio::net::UnixListener;

    #[tokio::test]
    async fn whose_directory_it_is_must_be_who_listens() {
        let dir = tempfile::tempdir().unwrap();
        let (own, other) = (dir.path().join("own"), dir.path().join("other"));
        for dir in [&own, &other] {
            std::fs::create_dir(dir).unwrap();
        }
        assert!(matches!(open(&own).await, Err(SocketError::Connect { .. })), "nobody listens");
        let _postgres = UnixListener::bind(other.join(NAME)).unwrap();
        open(&other).await.unwrap();
        symlink(other.join(NAME), own.join(NAME)).unwrap();
        if !rustix::process::geteuid().is_root() {
            let what = "a link to another account's database socket: only root has another account";
            return crate::testing::not_exercised(what);
        }
        chown(&own, Some(65_534), None).unwrap();
        let refused = open(&own).await.unwrap_err();
        assert!(matches!(refused, SocketError::Stranger { owner: 65_534, found: 0, .. }), "{refused}");
    }
}
