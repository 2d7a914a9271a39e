//! What the asset store reads, under any bytes: its records, the catalogue, and wheels.

use super::catalogue::Catalogue;
use super::{record, wheel as wheels};
use crate::fuzzing::{assert_refused_by_name, text};
use std::collections::BTreeMap;
use std::path::Path;

pub fn asset_record(bytes: &[u8]) {
    let path = Path::new("/store/kine/asset.json");
    match record::parse(bytes, path) {
        Ok(known) => {
            let written = serde_json::to_vec(&known).unwrap_or_default();
            assert_eq!(record::parse(&written, path), Ok(known));
        }
        Err(refusal) => assert_refused_by_name(&refusal, "asset.json"),
    }
}

pub fn catalogue(bytes: &[u8]) {
    match Catalogue::parse(&text(bytes)) {
        Ok(catalogue) => assert!(catalogue.entries().all(|(name, _)| catalogue.entry(name).is_ok())),
        Err(refusal) => assert_refused_by_name(&refusal, "catalogue"),
    }
}

/// A wheel's digest is checked before it is opened, so this is about a pin that was wrong from the start: whatever the
/// archive says, nothing lies outside the tree.
pub fn wheel(bytes: &[u8]) {
    let Ok(dir) = tempfile::tempdir() else { return };
    let (file, tree) = (dir.path().join("fuzzed.whl"), dir.path().join("tree"));
    if crate::files::write_atomic(&file, bytes, None).is_err() {
        return;
    }
    let members = BTreeMap::from(
        [("pg/", "postgres/"), ("bao/", "")].map(|(from, to)| (from.to_owned(), to.to_owned())),
    );
    if let Err(refusal) = wheels::unpack(&file, &members, &tree, &|_, _| ()) {
        assert_refused_by_name(&refusal, "fuzzed.whl");
    }
    let beside = std::fs::read_dir(dir.path()).into_iter().flatten().flatten();
    let beside: Vec<_> = beside.map(|entry| entry.file_name()).collect();
    assert!(beside.iter().all(|name| name == "fuzzed.whl" || name == "tree"), "outside the tree: {beside:?}");
}
