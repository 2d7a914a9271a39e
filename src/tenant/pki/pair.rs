//! A certificate and its key change together, although they are two files.
//!
//! Both are first written to one file beside them, whole or not at all: from then on the change has happened, and whoever
//! comes next finishes it. So a crash at any point leaves the old pair or the new one, and never a set that stays mixed.

use super::{Pki, PkiError};
use crate::fault;
use crate::files;
use std::path::PathBuf;

/// Where a private key begins in a PEM text.
const KEY_BEGINS: &str = "-----BEGIN PRIVATE KEY-----";

impl Pki {
    /// Certificate and key that are to be in the places of `name`.
    pub(super) fn next(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.next"))
    }

    /// Durable before it returns. Blocking.
    pub(super) fn replace(&self, name: &str, certificate: &str, key: &str) -> Result<(), PkiError> {
        self.write(&self.next(name), format!("{certificate}{key}").as_bytes())?;
        fault::point("pair-decided");
        self.finish(name)
    }

    /// Carries out a change that was begun; nothing where none was. Blocking.
    pub(super) fn finish(&self, name: &str) -> Result<(), PkiError> {
        let next = self.next(name);
        let Some(pair) = files::read_optional(&next)? else { return Ok(()) };
        let unusable = |reason: &str| PkiError::Unusable { path: next.clone(), reason: reason.to_owned() };
        let pair = String::from_utf8(pair).map_err(|_| unusable("it is no text"))?;
        let at = pair.find(KEY_BEGINS).ok_or_else(|| unusable("there is no key in it"))?;
        let (certificate, key) = pair.split_at(at);
        self.write(&self.key(name), key.as_bytes())?;
        fault::point("pair-half");
        self.write(&self.certificate(name), certificate.as_bytes())?;
        fault::point("pair-whole");
        files::remove(&next)?;
        Ok(files::sync_dir(&self.dir)?)
    }
}
