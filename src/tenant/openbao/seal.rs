//! The keys that open the vault: the newest one seals, and during a rotation the one before it still opens.
//!
//! The files are the record: a second one is a rotation under way, which ends when the older one is removed.

use super::super::pki::{PkiError, random_key};
use super::files::Files;
use crate::files::{self, FileError};
use std::path::PathBuf;

/// One key: 32 raw bytes in a file, under the name the vault notes with what it seals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SealKey {
    number: u32,
    pub(crate) path: PathBuf,
}

impl SealKey {
    /// Long enough not to occur by chance in what is sealed; the first one's name is older than the others.
    pub(crate) fn id(&self) -> String {
        if self.number == 1 { "k1".to_owned() } else { format!("berth-seal-{}", self.number) }
    }
}

impl Files {
    fn seal_key_of(&self, number: u32) -> SealKey {
        let name = if number == 1 { "unseal.key".to_owned() } else { format!("unseal-{number}.key") };
        SealKey { number, path: self.dir.join(name) }
    }

    /// Those there are, the newest first. Blocking.
    fn seal_keys(&self) -> Vec<SealKey> {
        let number = |name: &str| match name {
            "unseal.key" => Some(1),
            name => name.strip_prefix("unseal-")?.strip_suffix(".key")?.parse().ok(),
        };
        let entries = files::list(&self.dir).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut numbers: Vec<u32> = names.filter_map(|name| number(&name)).collect();
        numbers.sort_unstable_by(|one, other| other.cmp(one));
        numbers.into_iter().map(|number| self.seal_key_of(number)).collect()
    }

    /// The one that seals; the first one's place where there is none. Blocking.
    pub(crate) fn seal_key(&self) -> SealKey {
        self.seal_keys().into_iter().next().unwrap_or_else(|| self.seal_key_of(1))
    }

    /// The one that still opens. Blocking.
    pub(crate) fn previous_seal_key(&self) -> Option<SealKey> {
        self.seal_keys().into_iter().nth(1)
    }

    /// A rotation that is under way stays the one it is. Blocking.
    pub(crate) fn begin_seal_rotation(&self) -> Result<(), PkiError> {
        if self.previous_seal_key().is_some() {
            return Ok(());
        }
        let next = self.seal_key_of(self.seal_key().number + 1);
        Ok(files::write_atomic(&next.path, &random_key()?, self.owner)?)
    }

    /// Nothing is sealed with them any more. Blocking.
    pub(crate) fn drop_previous_seal_keys(&self) -> Result<(), FileError> {
        for key in self.seal_keys().iter().skip(1) {
            files::remove(&key.path)?;
        }
        files::sync_dir(&self.dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_has_two_keys_and_leaves_the_newer_one() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::of(dir.path(), None);
        files.prepare("a").unwrap();
        assert_eq!((files.seal_key().id().as_str(), files.previous_seal_key()), ("k1", None));
        files.begin_seal_rotation().unwrap();
        files.begin_seal_rotation().unwrap();
        assert_eq!(files.seal_key().id(), "berth-seal-2");
        assert_eq!(files.previous_seal_key().unwrap().id(), "k1");
        files.drop_previous_seal_keys().unwrap();
        assert_eq!((files.seal_key().number, files.previous_seal_key()), (2, None));
        for _ in 3..=12 {
            files.begin_seal_rotation().unwrap();
            files.drop_previous_seal_keys().unwrap();
        }
        assert_eq!(files.seal_key().path, dir.path().join("bao/unseal-12.key"));
    }
}
