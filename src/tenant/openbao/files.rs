//! What the vault keeps beside its database: configuration, seal key, ops password, and the mark "initialised".

use super::super::config_file;
use super::super::pki::{PkiError, random_key};
use crate::files::{self, FileError};
use crate::off_thread::off_thread;
use berth_actors::spec::User;
use std::path::{Path, PathBuf};

/// The directory of one vault.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(super) dir: PathBuf,
    pub(super) owner: Option<User>,
}

/// What the files say about the database's contents.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Vault {
    /// A login has worked before. Never touch its database.
    Initialised,
    /// None has: whatever lies in the database is a torn initialisation.
    Fresh { password: String },
    /// Initialised, but this file is gone or torn, without which nobody gets in.
    Lost(PathBuf),
}

impl Files {
    pub(crate) fn of(data_dir: &Path, owner: Option<User>) -> Self {
        Self { dir: data_dir.join("bao"), owner }
    }
    pub(super) fn config(&self) -> PathBuf {
        self.dir.join("bao.hcl")
    }
    pub(crate) fn password(&self) -> PathBuf {
        self.dir.join("ops-password")
    }
    fn mark(&self) -> PathBuf {
        self.dir.join("initialised")
    }

    pub(crate) fn is_initialised(&self) -> bool {
        self.mark().exists()
    }

    /// Writes the configuration, and before the vault has a life the secrets it begins with. Blocking.
    pub(super) fn prepare(&self, config: &str) -> Result<Vault, PkiError> {
        files::private_dir(&self.dir, self.owner)?;
        config_file::keep(&self.config(), config.as_bytes(), self.owner)?;
        let (seal, password) = (self.seal_key().path, self.password());
        if self.is_initialised() {
            // OpenBao says of another length only that it does not know its encoding, and ends.
            if files::read_optional(&seal)?.is_none_or(|key| key.len() != 32) {
                return Ok(Vault::Lost(seal));
            }
            return Ok(if password.exists() { Vault::Initialised } else { Vault::Lost(password) });
        }
        if !seal.exists() {
            files::write_atomic(&seal, &random_key()?, self.owner)?;
        }
        let kept = files::read_optional(&password)?.and_then(|bytes| String::from_utf8(bytes).ok());
        if let Some(password) = kept {
            return Ok(Vault::Fresh { password });
        }
        let fresh = hex::encode(random_key()?);
        files::write_atomic(&password, fresh.as_bytes(), self.owner)?;
        Ok(Vault::Fresh { password: fresh })
    }

    /// What a login needs: the authority in the file `ca`, and the operator's password.
    pub(super) async fn to_log_in(&self, ca: &Path) -> Result<(Vec<u8>, String), String> {
        let (ca, password) = (ca.to_owned(), self.password());
        let read = move || Ok::<_, FileError>((files::read(&ca)?, files::read_text(&password)?));
        off_thread(read).await.map_err(|error| error.to_string())
    }

    /// Durable before it returns. Blocking.
    pub(super) fn mark_initialised(&self) -> Result<(), FileError> {
        if self.is_initialised() {
            return Ok(());
        }
        files::write_atomic(
            &self.mark(),
            b"A login worked. Without this file the vault is made anew.\n",
            self.owner,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> (tempfile::TempDir, Files) {
        let dir = tempfile::tempdir().unwrap();
        let files = Files { dir: dir.path().join("bao"), owner: None };
        (dir, files)
    }

    #[test]
    fn secrets_are_made_once_and_the_vault_is_fresh_until_a_login_worked() {
        let (_dir, files) = files();
        let first = files.prepare("a").unwrap();
        let seal = std::fs::read(files.seal_key().path).unwrap();
        assert_eq!(seal.len(), 32);
        assert!(matches!(&first, Vault::Fresh { password } if password.len() == 64));
        assert_eq!(files.prepare("b").unwrap(), first);
        assert_eq!(std::fs::read(files.seal_key().path).unwrap(), seal);
        files.mark_initialised().unwrap();
        assert_eq!(files.prepare("b").unwrap(), Vault::Initialised);
        assert_eq!(std::fs::read(files.config()).unwrap(), b"b");
    }

    #[test]
    fn a_lost_key_of_a_living_vault_is_named_and_never_replaced() {
        let (_dir, files) = files();
        files.prepare("a").unwrap();
        files.mark_initialised().unwrap();
        std::fs::remove_file(files.seal_key().path).unwrap();
        assert_eq!(files.prepare("a").unwrap(), Vault::Lost(files.seal_key().path));
        assert!(!files.seal_key().path.exists());
    }
}
