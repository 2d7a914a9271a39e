//! What is known of one installed asset: `asset.json` in its own directory, published by the same rename as its files.
//!
//! There is no index beside it that could disagree: the store reads these records at its start.

use super::hashed::hash_to;
use crate::files::{self, FileError};
use crate::one_line::one_line;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub(super) const RECORD: &str = "asset.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    pub component: String,
    pub version: String,
    /// The pinned recipe it was made by ([`super::catalogue::key`]).
    pub key: String,
    /// sha256 of the wheel, or of the one program a build or a copy gave.
    pub digest: String,
    /// What made it: the name of the wheel, or the Go toolchain.
    pub made_by: String,
    /// Every file, relative to the asset's directory.
    pub files: BTreeMap<PathBuf, Stamp>,
}

/// Enough to see a torn or replaced file without reading it, and the digest for when it is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    pub size: u64,
    pub mtime_ns: i128,
    pub sha256: String,
}

/// What is known of an asset before its files are there.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub component: String,
    pub version: String,
    pub key: String,
    pub made_by: String,
}

impl Record {
    /// `digest` names the asset; without one it is the digest of the only file.
    pub(super) fn new(
        recipe: Recipe,
        digest: Option<String>,
        files: BTreeMap<PathBuf, Stamp>,
    ) -> Option<Self> {
        let digest = match digest {
            Some(digest) => digest,
            None if files.len() == 1 => files.values().next()?.sha256.clone(),
            None => return None,
        };
        let Recipe { component, version, key, made_by } = recipe;
        Some(Self { component, version, key, digest, made_by, files })
    }

    /// As it is written.
    pub(super) fn text(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec_pretty(self)?)
    }

    /// Bytes of all its files.
    pub fn size(&self) -> u64 {
        self.files.values().map(|stamp| stamp.size).sum()
    }

    /// The first file that is not what was installed, judged by size and time; contents are not read. Blocking.
    pub fn first_difference(&self, dir: &Path) -> Option<String> {
        self.files.iter().find_map(|(name, stamp)| match fs::symlink_metadata(dir.join(name)) {
            Err(error) => Some(format!("{}: {error}", name.display())),
            Ok(meta) if meta.len() != stamp.size || mtime_ns(&meta) != stamp.mtime_ns => {
                Some(format!("{} was changed after its installation", name.display()))
            }
            Ok(_) => None,
        })
    }

    /// The first file whose contents are not what was installed. Reads everything. Blocking.
    pub fn first_corruption(&self, dir: &Path) -> Option<String> {
        self.files.iter().find_map(|(name, stamp)| match sha256_of(&dir.join(name)) {
            Err(error) => Some(error.to_string()),
            Ok(digest) if digest != stamp.sha256 => Some(format!("{} has sha256 {digest}", name.display())),
            Ok(_) => None,
        })
    }
}

/// Stamps every file under `dir`, and makes it fit to be used by any account: directories and programs 0755, data 0644. What was
/// `hashed` when it was written is not read again. Blocking.
pub(super) fn stamp_tree(
    dir: &Path,
    hashed: &BTreeMap<PathBuf, String>,
) -> Result<BTreeMap<PathBuf, Stamp>, FileError> {
    let mut stamps = BTreeMap::new();
    let mut pending = vec![dir.to_owned()];
    while let Some(next) = pending.pop() {
        set_mode(&next, 0o755)?;
        for entry in fs::read_dir(&next).map_err(at("list", &next))? {
            let path = entry.map_err(at("list", &next))?.path();
            let meta = fs::symlink_metadata(&path).map_err(at("examine", &path))?;
            if meta.is_dir() {
                pending.push(path);
                continue;
            }
            set_mode(&path, if is_program(&meta) { 0o755 } else { 0o644 })?;
            let name = path.strip_prefix(dir).unwrap_or(&path).to_owned();
            let sha256 = hashed.get(&name).cloned().map_or_else(|| sha256_of(&path), Ok)?;
            stamps.insert(name, Stamp { size: meta.len(), mtime_ns: mtime_ns(&meta), sha256 });
        }
    }
    Ok(stamps)
}

pub(super) fn is_program(meta: &fs::Metadata) -> bool {
    meta.mode() & 0o111 != 0
}

/// sha256 of a file's contents, in hex. Blocking.
pub(super) fn sha256_of(path: &Path) -> Result<String, FileError> {
    let mut file = crate::files::trusted::open(path).map_err(at("open", path))?;
    hash_to(&mut file, &mut io::sink(), |_| ()).map_err(|error| at("read", path)(error.source()))
}

/// The record of the asset in `dir`, or one line saying why there is none to trust. Blocking.
pub(super) fn read(dir: &Path) -> Result<Record, String> {
    let path = dir.join(RECORD);
    let bytes = files::read_optional(&path).map_err(|error| error.to_string())?;
    let bytes = bytes.ok_or_else(|| format!("{} is missing", path.display()))?;
    parse(&bytes, &path)
}

/// The record in a file that is called `path`.
pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Record, String> {
    serde_json::from_slice(bytes).map_err(|error| format!("{} is torn: {}", path.display(), one_line(error)))
}

pub(super) fn set_mode(path: &Path, mode: u32) -> Result<(), FileError> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(at("set the mode of", path))
}

pub(super) fn mtime_ns(meta: &fs::Metadata) -> i128 {
    i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec())
}

pub(super) fn at<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FileError + 'a {
    move |source| FileError { action, path: path.to_owned(), source }
}
