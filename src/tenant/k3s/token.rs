//! The token a k3s encrypts its bootstrap data with: made once, kept with the cluster, never made again.

use super::super::pki::{PkiError, random_key};
use super::super::seat::Failure;
use crate::files::{self, FileError};
use berth_actors::spec::User;
use std::path::PathBuf;

#[derive(Debug, Clone)]
pub(super) struct Token {
    pub(super) path: PathBuf,
    /// `<data-dir>/server`: what k3s keeps there says whether it has ever started, and with which token.
    pub(super) server: PathBuf,
}

/// k3s would refuse its own data, or worse, another cluster's data would be taken for its own.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Make(#[from] PkiError),
    #[error("{path} is missing, and the data of this k3s are encrypted with it: restore it from a backup")]
    Lost { path: PathBuf },
    #[error("{path} is not the token of {server}: restore both from one backup")]
    Foreign { path: PathBuf, server: PathBuf },
}

impl Failure for TokenError {
    fn is_final(&self) -> bool {
        matches!(self, Self::Lost { .. } | Self::Foreign { .. })
    }
}

impl Token {
    /// Makes it before the first start; afterwards only checks that it is still the same. Blocking.
    pub(super) fn ensure(&self, owner: Option<User>) -> Result<(), TokenError> {
        let Some(token) = files::read_optional(&self.path)? else {
            if self.server.join("tls").exists() {
                return Err(TokenError::Lost { path: self.path.clone() });
            }
            let fresh = hex::encode(random_key()?);
            return Ok(files::write_atomic(&self.path, fresh.as_bytes(), owner)?);
        };
        // k3s writes it down as `K10<hash of its CA>::server:<token>`.
        let Some(used) = files::read_optional(&self.server.join("token"))? else { return Ok(()) };
        let used = used.trim_ascii();
        if used.ends_with(token.trim_ascii()) {
            return Ok(());
        }
        Err(TokenError::Foreign { path: self.path.clone(), server: self.server.clone() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn token(dir: &tempfile::TempDir) -> Token {
        Token { path: dir.path().join("k3s-token"), server: dir.path().join("k3s/server") }
    }

    fn started(token: &Token, with: &str) {
        std::fs::create_dir_all(token.server.join("tls")).unwrap();
        let line = format!("K10abc::server:{with}\n");
        files::write_atomic(&token.server.join("token"), line.as_bytes(), None).unwrap();
    }

    #[test]
    fn it_is_made_once_and_nobody_else_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let token = token(&dir);
        token.ensure(None).unwrap();
        let first = std::fs::read_to_string(&token.path).unwrap();
        assert_eq!(first.len(), 64);
        assert_eq!(token.path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        token.ensure(None).unwrap();
        started(&token, &first);
        token.ensure(None).unwrap();
        assert_eq!(std::fs::read_to_string(&token.path).unwrap(), first);
    }

    #[test]
    fn a_lost_or_foreign_token_of_a_cluster_with_data_is_final_and_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let token = token(&dir);
        started(&token, "the-secret");
        let lost = token.ensure(None).unwrap_err();
        assert!(lost.is_final() && lost.to_string().contains("k3s-token is missing"), "{lost}");
        assert!(!token.path.exists());
        files::write_atomic(&token.path, b"another", None).unwrap();
        let foreign = token.ensure(None).unwrap_err();
        assert!(
            foreign.is_final() && foreign.to_string().contains("k3s-token is not the token"),
            "{foreign}"
        );
        assert!(!foreign.to_string().contains("the-secret") && !foreign.to_string().contains("another"));
    }
}
