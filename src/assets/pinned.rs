//! A pinned file, once it is in hand: it is the one that was pinned, and nobody else can change it any more.
//!
//! Whatever is unpacked goes through here first. An operator's file may lie where others write: between a look at its digest and
//! the unpacking it could become another; and what a wrong one expands to has no limit. Blocking.

use super::hashed::hash_to;
use super::record::at;
use super::store::{Staged, Store, StoreError};
use super::wheel;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// `file` if it lies in the store's own staging, else a copy of it in `staged`; and its digest, which is one of `allowed`.
pub(super) fn bring(
    store: &Store,
    file: &Path,
    staged: &Staged,
    allowed: &[&str],
) -> Result<(PathBuf, String), StoreError> {
    if file.starts_with(store.staging()) {
        let digest = wheel::verify(file, allowed)?;
        return Ok((file.to_owned(), digest));
    }
    let own = staged.dir.path().join("brought");
    let mut from = crate::files::trusted::open(file).map_err(at("open", file))?;
    let mut to =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&own).map_err(at("create", &own))?;
    let found = hash_to(&mut from, &mut to, |_| ())
        .map_err(|error| error.place(&own, |error| StoreError::of(at("read", file)(error))))?;
    Ok((own, wheel::allowed_digest(file, found, allowed)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_becomes_another_file_after_the_look_is_unpacked_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("assets")).unwrap();
        let (staged, file) = (store.stage().unwrap(), dir.path().join("pg.whl"));
        crate::files::write_atomic(&file, b"good", None).unwrap();
        let good = super::super::record::sha256_of(&file).unwrap();
        let (own, digest) = bring(&store, &file, &staged, &["0", &good]).unwrap();
        crate::files::write_atomic(&file, b"evil", None).unwrap();
        assert_eq!((fs::read(&own).unwrap(), digest), (b"good".to_vec(), good.clone()));
        let refused = bring(&store, &file, &store.stage().unwrap(), &[&good]).unwrap_err();
        assert!(matches!(refused, StoreError::WrongDigest { .. }), "{refused}");
    }
}
