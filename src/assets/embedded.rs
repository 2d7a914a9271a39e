//! Packed assets inside this very program: what a release built with the feature `embedded` brings along (`build.rs`).
//!
//! They are mapped with the program, so one that is never unpacked costs no memory.

use super::packed::{self, PackedError};
use super::store::Store;
use std::io::Cursor;
use std::path::PathBuf;

#[cfg(feature = "embedded")]
include!(concat!(env!("OUT_DIR"), "/embedded_assets.rs"));
#[cfg(not(feature = "embedded"))]
const ARCHIVES: &[(&str, &[u8])] = &[];

/// The asset of the recipe `key`, unpacked into the store; `None` where this program does not have it. Blocking.
pub(super) fn restore(
    store: &Store,
    key: &str,
    tell: &dyn Fn(u64, u64),
) -> Result<Option<PathBuf>, PackedError> {
    from(ARCHIVES, store, key, tell)
}

fn from(
    archives: &[(&'static str, &'static [u8])],
    store: &Store,
    key: &str,
    tell: &dyn Fn(u64, u64),
) -> Result<Option<PathBuf>, PackedError> {
    for (name, bytes) in archives {
        if packed::record_of(*bytes, name)?.key == key {
            let record = store.unpack(Cursor::new(*bytes), name, tell)?;
            return Ok(Some(store.path(&record.digest)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assets::StoreError;
    use crate::assets::record::Recipe;

    #[test]
    fn what_is_embedded_is_unpacked_by_its_key_and_nothing_else_is() -> Result<(), StoreError> {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let store = Store::open(one.path())?;
        let staged = store.stage()?;
        crate::files::write_atomic(&staged.tree.join("kine"), b"kine", None).unwrap();
        let recipe = Recipe {
            component: "kine".into(),
            version: "v1".into(),
            key: "k".into(),
            made_by: "a test".into(),
        };
        store.install(&staged, recipe, None)?;
        let record = store.reread("k")?.unwrap();
        let packed = store.pack(&record, &|_, _| ()).unwrap();
        let bytes: &'static [u8] = crate::files::trusted::bytes(packed).unwrap().leak();

        let archives = &[("kine.tar.zst", bytes)];
        let store = Store::open(other.path())?;
        assert_eq!(from(archives, &store, "another", &|_, _| ()).unwrap(), None);
        let dir = from(archives, &store, "k", &|_, _| ()).unwrap().unwrap();
        assert_eq!(crate::files::trusted::bytes(dir.join("kine")).unwrap(), b"kine");
        Ok(())
    }
}
