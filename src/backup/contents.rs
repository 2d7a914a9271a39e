//! Which files of a cluster's data directory belong into its backup, beside the database: keys, seals, records, nodes.
//!
//! What is left out is made again by the next start, or belongs to this host alone. A new component's files are in by
//! themselves: a file too many is harmless, a key too few is not. Blocking.

use crate::ccm;
use crate::files::{self, FileError};
use crate::tenant::pki;
use std::io;
use std::path::{Path, PathBuf};

/// The database, which is copied while it runs; what is written anew at each start, or for a moment only; and what k3s unpacks
/// of itself.
const LEFT_OUT: [&str; 10] =
    ["pg", "pg.new", "pki.new", "log", "tmp", "kubeconfig", "k3s/data", "k3s/agent", "k3s/flex", "flex"];
/// Without what is in these a cluster cannot be had back.
const ESSENTIAL: [&str; 3] = [pki::DIR, "bao", "k3s/server"];

/// Files and directories below `data`, each directory before what is in it, by paths relative to it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Contents {
    pub(super) dirs: Vec<String>,
    pub(super) files: Vec<String>,
    /// Links, pipes, sockets, and what has no name in UTF-8: none of it is Berth's.
    pub(super) odd: Vec<String>,
}

/// Whether a backup is none without it.
pub(super) fn is_essential(path: &str) -> bool {
    ESSENTIAL.iter().any(|dir| Path::new(path).starts_with(dir))
}

pub(super) fn of(data: &Path) -> Result<Contents, FileError> {
    let mut contents = Contents::default();
    let mut pending = vec![PathBuf::new()];
    while let Some(dir) = pending.pop() {
        let failed = |source| FileError { action: "list", path: data.join(&dir), source };
        let entries = match files::list(&data.join(&dir)) {
            // Whoever works in there removes what he made.
            Err(error) if error.kind() == io::ErrorKind::NotFound && may_vanish(&dir) => continue,
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let path = dir.join(entry.file_name());
            if !belongs(data, &path) {
                continue;
            }
            let Some(name) = path.to_str() else {
                contents.odd.push(path.to_string_lossy().into_owned());
                continue;
            };
            let kind = entry.file_type().map_err(failed)?;
            if kind.is_dir() {
                contents.dirs.push(name.to_owned());
                pending.push(path);
            } else if kind.is_file() {
                contents.files.push(name.to_owned());
            } else {
                contents.odd.push(name.to_owned());
            }
        }
    }
    contents.dirs.sort();
    contents.files.sort();
    contents.odd.sort();
    Ok(contents)
}

fn may_vanish(dir: &Path) -> bool {
    dir.to_str().is_some_and(|dir| !dir.is_empty() && !is_essential(dir))
}

fn belongs(data: &Path, path: &Path) -> bool {
    let aside =
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(files::ASIDE.as_bytes()));
    !aside
        && data.join(path) != ccm::credential_file(data)
        && !LEFT_OUT.iter().any(|out| path == Path::new(out))
}

/// How much a directory holds, about: it changes while it is looked at.
pub(super) fn size_of(dir: &Path) -> Result<u64, FileError> {
    let mut total = 0;
    let mut pending = vec![dir.to_owned()];
    while let Some(dir) = pending.pop() {
        let failed = |source| FileError { action: "list", path: dir.clone(), source };
        let entries = match files::list(&dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            entries => entries.map_err(failed)?,
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => pending.push(dir.join(entry.file_name())),
                Ok(meta) => total += meta.len(),
                // Gone since.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn keys_and_records_belong_to_it_and_what_this_host_makes_again_does_not() {
        let data = tempfile::tempdir().unwrap();
        let kept = [
            "bao/unseal.key",
            "identity.json",
            "k3s-token",
            "k3s/server/tls/ca.key",
            "nodes.json",
            "pki/sa.key",
        ];
        let left = [
            "pg/PG_VERSION",
            "log/kine.log",
            "kubeconfig",
            "cloud-controller-manager.kubeconfig",
            "pki/.berth-1",
            "k3s/data/bin/k3s",
            "tmp/half-done",
        ];
        for path in kept.iter().chain(&left) {
            let path = data.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::File::create(path).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", data.path().join("pki/link")).unwrap();
        let contents = of(data.path()).unwrap();
        assert_eq!(contents.files, kept.map(str::to_owned));
        assert_eq!(contents.dirs, ["bao", "k3s", "k3s/server", "k3s/server/tls", "pki"]);
        assert_eq!(contents.odd, ["pki/link"]);
        assert!(["pki/sa.key", "k3s/server/tls/ca.key", "bao"].iter().all(|path| is_essential(path)));
        assert!(!["pki.d/x", "nodes.json", "k3s/db"].iter().any(|path| is_essential(path)));
    }
}
