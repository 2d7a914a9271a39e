//! A backup that was unpacked and verified, and is nobody's yet: it lies beside the clusters under a name that the next
//! daemon's start removes, until it is given its place by one rename.

use super::manifest::{MANIFEST, Manifest};
use super::verify::{self, BackupError};
use crate::files::{self, ASIDE, FileError};
use crate::guard::{MACHINE_ID, Owner, Record};
use crate::one_line::one_line;
use berth_actors::spec::User;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::io::{self, Read};
use std::os::unix::fs::chown;
use std::path::Path;
use tempfile::TempDir;

/// Removed when it is dropped, off whatever thread that happens on.
#[derive(Debug)]
pub struct Staged {
    dir: Option<TempDir>,
    pub manifest: Manifest,
}

impl Drop for Staged {
    fn drop(&mut self) {
        if let Some(dir) = self.dir.take() {
            // One that was given its place is not there any more.
            std::thread::spawn(move || drop(dir));
        }
    }
}

impl Staged {
    pub fn path(&self) -> &Path {
        self.dir.as_ref().map_or(Path::new(""), TempDir::path)
    }
}

/// Unpacks `backup` below `clusters`, every file of it owned by `owner`. Blocking.
pub fn stage(backup: impl Read, clusters: &Path, owner: Option<User>) -> Result<Staged, BackupError> {
    let failed = |source| FileError { action: "make a directory in", path: clusters.to_owned(), source };
    // The directory itself stays the daemon's until it has its place: nobody else can reach into it.
    let dir = tempfile::Builder::new().prefix(ASIDE).tempdir_in(clusters).map_err(failed)?;
    let manifest = verify::unpack(backup, dir.path(), owner)?;
    let record = serde_json::to_vec(&manifest).unwrap_or_default();
    files::write_atomic(&dir.path().join(MANIFEST), &record, None)?;
    Ok(Staged { dir: Some(dir), manifest })
}

/// Why unpacked data were not given their place.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{0}")]
    Identity(String),
}

/// Makes what is `staged` the data of `new`, at `place`: the identity is written, then all of it is renamed there, durably.
/// Nothing may be there. Blocking.
pub fn give_place(staged: &Path, place: &Path, new: Owner, owner: Option<User>) -> Result<(), PlaceError> {
    let path = staged.join(MANIFEST);
    let manifest = Manifest::parse(&files::read(&path)?)
        .map_err(|error| PlaceError::Identity(format!("{}: {}", path.display(), one_line(error))))?;
    let identity = Record::restored(staged, place, new, &manifest.identity, Path::new(MACHINE_ID))
        .map_err(PlaceError::Identity)?;
    let record = serde_json::to_vec_pretty(&identity).map_err(|e| PlaceError::Identity(e.to_string()))?;
    files::write_atomic(&staged.join("identity.json"), &record, owner)?;
    let failed = |action, path: &Path| {
        let path = path.to_owned();
        move |source: io::Error| FileError { action, path, source }
    };
    std::fs::remove_file(&path).map_err(failed("remove", &path))?;
    if let Some(user) = owner {
        chown(staged, Some(user.uid), Some(user.gid)).map_err(failed("change the owner of", staged))?;
    }
    let dir = crate::files::trusted::open(staged).map_err(failed("open", staged))?;
    // One sync for a thousand files.
    rustix::fs::syncfs(&dir).map_err(|e| failed("sync the file system of", staged)(e.into()))?;
    renameat_with(CWD, staged, CWD, place, RenameFlags::NOREPLACE)
        .map_err(|e| failed("rename onto", place)(e.into()))?;
    Ok(files::sync_dir(place.parent().unwrap_or(Path::new("/")))?)
}
