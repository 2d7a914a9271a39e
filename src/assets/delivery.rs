//! Components that come as one pinned file: program or archive, brought by hand, or from a server of the operator's choice.
//!
//! Nothing of it is unpacked before all of it was seen to be the pinned one. Blocking throughout.

use super::catalogue::Content;
use super::hashed::{Told, hash_to};
use super::pinned;
use super::record::{Recipe, at, set_mode};
use super::store::{Staged, Store, StoreError};
use super::wheel::{self, WheelError};
use crate::one_line::one_line;
use flate2::read::MultiGzDecoder;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use zstd::Decoder;

#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Zip(#[from] WheelError),
    #[error("{file} cannot be unpacked: {reason}")]
    Broken { file: String, reason: String },
    #[error("{file} has no member {member}; it has {has}: name it with --member")]
    NoMember { file: String, member: String, has: String },
}

/// What a file is called and made of, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Zip,
    Gzip,
    Zstd,
    /// A tar, or a program.
    Plain,
}

const MAGIC: usize = 4;

impl Form {
    fn of(magic: &[u8]) -> Self {
        match magic {
            [b'P', b'K', 3, 4] => Self::Zip,
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd] => Self::Zstd,
            _ => Self::Plain,
        }
    }
}

/// How many members an error names.
const MEMBERS_NAMED: usize = 5;

/// One component in one pinned file.
#[derive(Debug, Clone)]
pub(super) struct Delivery<'a> {
    pub component: &'a str,
    pub content: &'a Content,
}

impl Delivery<'_> {
    /// Installs what `file` holds as `recipe`; `tell` hears how much of the file was read, and how much there is.
    pub(super) fn install(
        &self,
        store: &Store,
        file: &Path,
        recipe: Recipe,
        tell: &dyn Fn(u64, u64),
    ) -> Result<PathBuf, DeliveryError> {
        let mut staged = store.stage()?;
        let (own, _) = pinned::bring(store, file, &staged, &[&self.content.sha256])?;
        self.unpack(&own, file, &mut staged, tell)?;
        let program = self.content.program(self.component);
        if !staged.tree.join(&program).is_file() {
            return Err(broken(file, format!("it gives no {program}")));
        }
        // One program names itself, as where it was built; a tree is named by its archive.
        let digest = (staged.hashed.len() != 1).then(|| self.content.sha256.clone());
        Ok(store.install(&staged, recipe, digest)?)
    }

    /// `own` is what came as `file`, and is the one that was pinned.
    fn unpack(
        &self,
        own: &Path,
        file: &Path,
        staged: &mut Staged,
        tell: &dyn Fn(u64, u64),
    ) -> Result<(), DeliveryError> {
        let opened = crate::files::trusted::open(own).map_err(at("open", own)).map_err(StoreError::of)?;
        let total = opened.metadata().map_err(at("examine", own)).map_err(StoreError::of)?.len();
        let mut done = 0;
        let advance = |read| {
            done += read;
            tell(done, total);
        };
        let mut told = Told { inner: opened, tell: advance };
        let mut magic = Vec::new();
        (&mut told).take(MAGIC as u64).read_to_end(&mut magic).map_err(|error| broken(file, error))?;
        let form = Form::of(&magic);
        if form == Form::Zip && !self.content.members.is_empty() {
            staged.hashed = wheel::unpack(own, &self.content.members, &staged.tree, tell)?;
            return Ok(());
        }
        let stream = magic.as_slice().chain(&mut told);
        match form {
            Form::Gzip => self.place(file, MultiGzDecoder::new(stream), staged),
            Form::Zstd => {
                let mut decoder = Decoder::new(stream).map_err(|error| broken(file, error))?;
                decoder.window_log_max(super::packed::WINDOW_LOG).map_err(|error| broken(file, error))?;
                self.place(file, decoder, staged)
            }
            Form::Zip | Form::Plain => self.place(file, stream, staged),
        }
    }

    fn place(&self, file: &Path, stream: impl Read, staged: &mut Staged) -> Result<(), DeliveryError> {
        if self.content.members.is_empty() {
            return write(file, &self.content.program(self.component), stream, true, staged);
        }
        let mut seen = Vec::new();
        let mut tar = tar::Archive::new(stream);
        for entry in tar.entries().map_err(|error| broken(file, error))? {
            let mut entry = entry.map_err(|error| broken(file, error))?;
            if !entry.header().entry_type().is_file() {
                continue;
            }
            let path = entry.path().map_err(|error| broken(file, error))?.to_string_lossy().into_owned();
            let member = path.trim_start_matches("./");
            let Some(target) = wheel::target(&self.content.members, member) else {
                seen.push(one_line(member));
                continue;
            };
            let is_program = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0)
                || target == self.content.program(self.component);
            write(file, &target, &mut entry, is_program, staged)?;
        }
        if staged.hashed.is_empty() {
            let more = seen.len().saturating_sub(MEMBERS_NAMED);
            seen.truncate(MEMBERS_NAMED);
            let mut has = if seen.is_empty() { "none".to_owned() } else { seen.join(", ") };
            if more > 0 {
                has = format!("{has} and {more} more");
            }
            let member = self.content.members.keys().map(String::as_str).collect::<Vec<_>>().join(" or ");
            return Err(DeliveryError::NoMember { file: file.display().to_string(), member, has });
        }
        Ok(())
    }
}

fn write(
    file: &Path,
    name: &str,
    mut content: impl Read,
    is_program: bool,
    staged: &mut Staged,
) -> Result<(), DeliveryError> {
    let name = PathBuf::from(name);
    if wheel::leads_outside(&name) {
        return Err(broken(file, format!("its member {} leads outside", name.display())));
    }
    let path = staged.tree.join(&name);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(at("create the directory", parent)).map_err(StoreError::of)?;
    }
    let mut out = File::create_new(&path).map_err(|error| match error.kind() {
        // The tree was empty: whatever is in the way came out of this file.
        io::ErrorKind::AlreadyExists | io::ErrorKind::IsADirectory => {
            broken(file, format!("its member {} has no place beside the others", name.display()))
        }
        _ => StoreError::of(at("create", &path)(error)).into(),
    })?;
    let sha256 = hash_to(&mut content, &mut out, |_| ())
        .map_err(|error| error.place(&path, |error| broken(file, error)))?;
    drop(out);
    set_mode(&path, if is_program { 0o755 } else { 0o644 }).map_err(StoreError::of)?;
    staged.hashed.insert(name, sha256);
    Ok(())
}

fn broken(file: &Path, reason: impl std::fmt::Display) -> DeliveryError {
    DeliveryError::Broken { file: file.display().to_string(), reason: one_line(reason) }
}

#[cfg(test)]
#[path = "delivery_tests.rs"]
mod tests;
