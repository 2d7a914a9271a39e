//! Reads a whole asset, extracted and at rest, and compares it with what was installed. With leave to repair, it is unpacked
//! anew, or removed to be made again. Blocking throughout.

use super::gc::Asset;
use super::packed::PackedError;
use super::store::{Store, StoreError};
use super::usage::Use;

/// What became of one form of an asset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    Sound,
    /// Why, and nothing was done about it.
    Damaged(String),
    /// Why, and it is as it was installed again.
    Repaired(String),
    /// Why, and it is gone.
    Removed(String),
}

/// The packed form first: it may repair the other.
pub fn check(store: &Store, asset: &Asset, repair: bool) -> Result<Vec<Health>, StoreError> {
    let mut found = Vec::new();
    let packed = store.packed(&asset.digest);
    let mut rests_well = false;
    if asset.packed.is_some() {
        let health = match Store::verify_packed(&packed, &|_, _| ()) {
            Ok(_) => Health::Sound,
            Err(PackedError::Store(error)) => return Err(error),
            Err(damage) if repair => {
                store.remove_packed(&asset.digest)?;
                Health::Removed(damage.to_string())
            }
            Err(damage) => Health::Damaged(damage.to_string()),
        };
        rests_well = health == Health::Sound;
        found.push(health);
    }
    if asset.size.is_some() {
        found.push(extracted(store, asset, repair, rests_well)?);
    }
    Ok(found)
}

fn extracted(store: &Store, asset: &Asset, repair: bool, rests_well: bool) -> Result<Health, StoreError> {
    let dir = store.path(&asset.digest);
    let record = store.records().find(|record| record.digest == asset.digest);
    let damage = match record {
        None => Some("its record is torn".to_owned()),
        Some(record) => record.first_corruption(&dir),
    };
    let Some(damage) = damage.map(|damage| format!("{}: {damage}", dir.display())) else {
        return Ok(Health::Sound);
    };
    if !repair {
        return Ok(Health::Damaged(damage));
    }
    if rests_well {
        // Renamed into its place: what runs from the damaged one keeps that.
        return match store.restore_packed(&asset.digest) {
            Ok(()) => Ok(Health::Repaired(damage)),
            Err(PackedError::Store(error)) => Err(error),
            Err(error) => Ok(Health::Damaged(error.to_string())),
        };
    }
    if matches!(asset.needed, Some(Use::Runs { .. } | Use::Held)) {
        return Ok(Health::Damaged(format!("{damage}; stop what runs from it, then repair again")));
    }
    store.remove_extracted(&asset.digest)?;
    Ok(Health::Removed(damage))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assets::record::Recipe;
    use crate::files;
    use std::path::Path;

    fn home(root: &Path, is_packed: bool) -> (Store, Asset) {
        let store = Store::open(root).unwrap();
        let staged = store.stage().unwrap();
        files::write_atomic(&staged.tree.join("kine"), b"kine", None).unwrap();
        let recipe = Recipe {
            component: "kine".into(),
            version: "v1".into(),
            key: "k".into(),
            made_by: "a test".into(),
        };
        store.install(&staged, recipe, None).unwrap();
        drop(store);
        let store = Store::open(root).unwrap();
        let record = store.records().next().unwrap().clone();
        if is_packed {
            store.pack(&record, &|_, _| ()).unwrap();
        }
        let asset = Asset {
            component: Some(record.component),
            version: Some(record.version),
            size: Some(4),
            packed: is_packed.then_some(1),
            needed: None,
            digest: record.digest,
        };
        (store, asset)
    }

    fn damage(path: &Path) {
        let mut bytes = files::trusted::bytes(path).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        files::write_atomic(path, &bytes, None).unwrap();
    }

    #[test]
    fn a_damaged_program_is_told_and_comes_back_from_rest() {
        let root = tempfile::tempdir().unwrap();
        let (store, asset) = home(root.path(), true);
        assert_eq!(check(&store, &asset, false).unwrap(), [Health::Sound, Health::Sound]);
        let program = store.path(&asset.digest).join("kine");
        damage(&program);
        let found = check(&store, &asset, false).unwrap();
        assert!(matches!(&found[1], Health::Damaged(why) if why.contains("kine has sha256")), "{found:?}");
        assert!(matches!(check(&store, &asset, true).unwrap()[..], [Health::Sound, Health::Repaired(_)]));
        assert_eq!(files::trusted::bytes(&program).unwrap(), b"kine");
        assert_eq!(check(&store, &asset, false).unwrap(), [Health::Sound, Health::Sound]);
    }

    #[test]
    fn what_cannot_be_unpacked_anew_is_removed_unless_it_runs() {
        let root = tempfile::tempdir().unwrap();
        let (store, asset) = home(root.path(), false);
        damage(&store.path(&asset.digest).join("kine"));
        let running = Asset { needed: Some(Use::Runs { pid: 1 }), ..asset.clone() };
        assert!(matches!(check(&store, &running, true).unwrap()[..], [Health::Damaged(_)]));
        assert!(matches!(check(&store, &asset, true).unwrap()[..], [Health::Removed(_)]));
        assert!(!store.path(&asset.digest).exists());
    }

    #[test]
    fn a_damaged_archive_goes_and_what_is_extracted_stays() {
        let root = tempfile::tempdir().unwrap();
        let (store, asset) = home(root.path(), true);
        damage(&store.packed(&asset.digest));
        assert!(matches!(check(&store, &asset, true).unwrap()[..], [Health::Removed(_), Health::Sound]));
        assert!(!store.packed(&asset.digest).exists());
    }
}
