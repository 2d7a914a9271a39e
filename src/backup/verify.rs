//! Reads a backup to its last byte and believes nothing that its manifest does not confirm. Blocking throughout.

use super::manifest::{HEADER, Header, MANIFEST, Manifest, Member, Unreadable, is_inside};
use crate::files::FileError;
use crate::one_line::one_line;
use berth_actors::spec::User;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown, fchown};
use std::path::{Path, PathBuf};
use tar::EntryType;

/// Every zstd frame begins with it.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// A header or manifest: a thousand files make 150 kB.
const LARGEST_RECORD: u64 = 64 << 20;
/// How much more it may unpack to than it says: the database went on growing while it was read.
const GROWTH: u64 = 4 << 30;

/// Why a file is not restored. Names what is wrong first, as the identity guard does.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("NotABackup: {0}; a backup is a file that `berth cluster backup` wrote")]
    Foreign(String),
    #[error("NewerFormat: it has format {format}, this Berth reads up to {max}: restore it with the Berth that made it, or a newer one", max = super::manifest::FORMAT)]
    Newer { format: u32 },
    #[error("TornBackup: {0}; copy it again from where it is whole")]
    Torn(String),
    #[error("WrongDigest: its member {0} is not the one in its manifest: it was changed after it was made")]
    Digest(String),
    #[error("WrongMember: {0}")]
    Member(String),
    #[error("NoSpace: it unpacks to {needed} bytes, and {free} are free in {dir}", dir = .dir.display())]
    Space { needed: u64, free: u64, dir: PathBuf },
    #[error(transparent)]
    File(#[from] FileError),
}

impl BackupError {
    /// A name in a foreign file may hold anything.
    fn on_one_line(self) -> Self {
        match self {
            Self::Foreign(text) => Self::Foreign(one_line(text)),
            Self::Torn(text) => Self::Torn(one_line(text)),
            Self::Digest(name) => Self::Digest(one_line(name)),
            Self::Member(text) => Self::Member(one_line(text)),
            newer_or_ours @ (Self::Newer { .. } | Self::Space { .. } | Self::File(_)) => newer_or_ours,
        }
    }
}

/// Reads all of it and keeps nothing.
pub fn verify(backup: impl Read) -> Result<Manifest, BackupError> {
    read(backup, None).map_err(BackupError::on_one_line)
}

/// The same, and unpacks it below `into`, which exists and is empty, for `owner`. What is there after an error is worthless.
pub fn unpack(backup: impl Read, into: &Path, owner: Option<User>) -> Result<Manifest, BackupError> {
    read(backup, Some((into, owner))).map_err(BackupError::on_one_line)
}

fn read(mut backup: impl Read, into: Option<(&Path, Option<User>)>) -> Result<Manifest, BackupError> {
    let mut magic = [0; ZSTD.len()];
    backup.read_exact(&mut magic).map_err(|_| BackupError::Foreign("it is shorter than any".to_owned()))?;
    if magic != ZSTD {
        return Err(BackupError::Foreign("it is not compressed with zstd".to_owned()));
    }
    let frame = zstd::Decoder::new(magic.chain(backup)).map_err(torn)?;
    let mut tar = tar::Archive::new(frame);
    let mut entries = tar.entries().map_err(torn)?;
    let header = match entries.next() {
        Some(Ok(mut first)) if first.path().is_ok_and(|path| path == Path::new(HEADER)) => {
            Header::parse(&record(&mut first)?).map_err(unreadable)?
        }
        Some(Err(error)) => return Err(torn(error)),
        _ => return Err(BackupError::Foreign(format!("it does not begin with {HEADER}"))),
    };
    if let Some((dir, _)) = into {
        let free = free_space(dir)?;
        if free < header.bytes {
            return Err(BackupError::Space { needed: header.bytes, free, dir: dir.to_owned() });
        }
    }
    let mut found = BTreeMap::new();
    let mut left = header.bytes.saturating_add(GROWTH);
    let mut manifest = None;
    for entry in entries {
        let mut entry = entry.map_err(torn)?;
        let path = entry.path().map_err(torn)?.into_owned();
        if manifest.is_some() {
            return Err(BackupError::Member(format!("{} comes after the manifest", path.display())));
        }
        if path == Path::new(MANIFEST) {
            manifest = Some(Manifest::parse(&record(&mut entry)?).map_err(unreadable)?);
            continue;
        }
        let name = path.to_string_lossy().into_owned();
        if !is_inside(&path) {
            return Err(BackupError::Member(format!("it has a member {name:?}, which no cluster has")));
        }
        match entry.header().entry_type() {
            EntryType::Directory => {
                if let Some((dir, owner)) = into {
                    make_dir(&dir.join(&path), owner)?;
                }
            }
            EntryType::Regular => {
                left = left.checked_sub(entry.size()).ok_or_else(|| {
                    BackupError::Member(format!(
                        "it unpacks to far more than the {} bytes it names",
                        header.bytes
                    ))
                })?;
                let member = take(&mut entry, into.map(|(dir, owner)| (dir.join(&path), owner)))?;
                if found.insert(name.clone(), member).is_some() {
                    return Err(BackupError::Member(format!("it has {name} twice")));
                }
            }
            other => {
                return Err(BackupError::Member(format!(
                    "its member {name} is {other:?}, neither file nor directory"
                )));
            }
        }
    }
    // To the last byte: the frame's own checksum stands there.
    let mut rest = Vec::new();
    tar.into_inner().take(LARGEST_RECORD).read_to_end(&mut rest).map_err(torn)?;
    if rest.iter().any(|byte| *byte != 0) {
        return Err(BackupError::Member("there is more after its end".to_owned()));
    }
    let manifest = manifest.ok_or_else(|| BackupError::Torn("it ends before its manifest".to_owned()))?;
    compare(&manifest.members, &found)?;
    Ok(manifest)
}

fn compare(listed: &BTreeMap<String, Member>, found: &BTreeMap<String, Member>) -> Result<(), BackupError> {
    for (name, member) in found {
        match listed.get(name) {
            Some(listed) if listed == member => {}
            Some(_) => return Err(BackupError::Digest(name.clone())),
            None => return Err(BackupError::Member(format!("its manifest does not know {name}"))),
        }
    }
    match listed.keys().find(|name| !found.contains_key(*name)) {
        Some(missing) => Err(BackupError::Member(format!("{missing} is missing from it"))),
        None => Ok(()),
    }
}

fn take(entry: &mut impl Read, to: Option<(PathBuf, Option<User>)>) -> Result<Member, BackupError> {
    let mut file = to.map(|(path, owner)| made(&path, owner).map(|file| (file, path))).transpose()?;
    let (mut sha256, mut size) = (Sha256::new(), 0_u64);
    let mut buffer = vec![0; 128 << 10];
    loop {
        let read = entry.read(&mut buffer).map_err(torn)?;
        if read == 0 {
            return Ok(Member { size, sha256: hex::encode(sha256.finalize()) });
        }
        sha256.update(&buffer[..read]);
        size += read as u64;
        if let Some((file, path)) = &mut file {
            let failed = |source| FileError { action: "write", path: path.clone(), source };
            file.write_all(&buffer[..read]).map_err(failed)?;
        }
    }
}

fn made(path: &Path, owner: Option<User>) -> Result<fs::File, FileError> {
    let failed = |source| FileError { action: "create", path: path.to_owned(), source };
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    if let Some(user) = owner {
        fchown(&file, Some(user.uid), Some(user.gid)).map_err(failed)?;
    }
    Ok(file)
}

fn make_dir(path: &Path, owner: Option<User>) -> Result<(), FileError> {
    let failed = |source| FileError { action: "create the directory", path: path.to_owned(), source };
    fs::DirBuilder::new().mode(0o700).create(path).map_err(failed)?;
    match owner {
        Some(user) => chown(path, Some(user.uid), Some(user.gid)).map_err(failed),
        None => Ok(()),
    }
}

/// A header or manifest, whole.
fn record(entry: &mut impl Read) -> Result<Vec<u8>, BackupError> {
    let mut bytes = Vec::new();
    entry.take(LARGEST_RECORD).read_to_end(&mut bytes).map_err(torn)?;
    Ok(bytes)
}

/// Bytes that an ordinary user may still write where `dir` is.
pub fn free_space(dir: &Path) -> Result<u64, FileError> {
    let failed = |errno: rustix::io::Errno| FileError {
        action: "look at the free space of",
        path: dir.to_owned(),
        source: errno.into(),
    };
    rustix::fs::statvfs(dir).map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize)).map_err(failed)
}

#[allow(clippy::needless_pass_by_value, reason = "map_err hands it over so")]
fn torn(error: io::Error) -> BackupError {
    BackupError::Torn(crate::one_line::one_line(error))
}

fn unreadable(error: Unreadable) -> BackupError {
    match error {
        Unreadable::Newer(format) => BackupError::Newer { format },
        Unreadable::Torn(reason) => {
            BackupError::Torn(format!("what it says of itself cannot be read: {reason}"))
        }
    }
}

#[cfg(test)]
#[path = "verify_tests.rs"]
mod tests;
