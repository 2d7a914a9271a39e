use super::*;
use crate::assets::record::Recipe;
use crate::assets::store::Store;
use std::os::unix::fs::PermissionsExt;

const QUIET: Tell<'static> = &|_, _| ();

/// A store with one asset of two files, and its record.
fn installed(root: &Path) -> (Store, Record) {
    let store = Store::open(root).unwrap();
    let staged = store.stage().unwrap();
    for (name, mode) in [("bin/postgres", 0o755), ("share/sql", 0o644)] {
        let path = staged.tree.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        crate::files::write_atomic(&path, name.repeat(1000).as_bytes(), None).unwrap();
        set_mode(&path, mode).unwrap();
    }
    let recipe = Recipe {
        component: "postgres".into(),
        version: "18.6".into(),
        key: "k".into(),
        made_by: "a test".into(),
    };
    store.install(&staged, recipe, Some("d".into())).unwrap();
    drop(store);
    let store = Store::open(root).unwrap();
    let record = store.records().next().unwrap().clone();
    (store, record)
}

fn archive(path: &Path) -> Vec<u8> {
    crate::files::trusted::bytes(path).unwrap()
}

/// Unpacked into nothing, as another store would.
fn read_back(bytes: Vec<u8>) -> Result<Record, PackedError> {
    let dir = tempfile::tempdir().unwrap();
    unpack(io::Cursor::new(bytes), "a.tar.zst", dir.path(), QUIET)
}

#[test]
fn an_asset_comes_back_from_rest_as_it_was_installed() {
    let root = tempfile::tempdir().unwrap();
    let (store, record) = installed(root.path());
    let dir = store.path("d");
    let path = store.pack(&record, QUIET).unwrap();
    assert_eq!(Store::verify_packed(&path, QUIET).unwrap(), record);
    assert_eq!(store.at_rest().unwrap()[0].1.as_ref().unwrap(), &record);

    store.remove(&record).unwrap();
    assert_eq!(store.restore("another", QUIET).unwrap(), None);
    assert_eq!(store.restore("k", QUIET).unwrap(), Some(dir.clone()));
    assert_eq!((record.first_difference(&dir), record.first_corruption(&dir)), (None, None));
    let mode = |name| fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(["", "bin", "bin/postgres", "share/sql"].map(mode), [0o755, 0o755, 0o755, 0o644]);
    drop(store);
    assert_eq!(Store::open(root.path()).unwrap().find("k"), Ok(dir));
}

#[test]
fn what_the_zstd_program_writes_with_a_long_window_is_read() {
    let root = tempfile::tempdir().unwrap();
    let (store, record) = installed(root.path());
    let bytes = archive(&store.pack(&record, QUIET).unwrap());
    let mut long = Vec::new();
    let mut encoder = Encoder::new(&mut long, 1).unwrap();
    encoder.window_log(WINDOW_LOG).unwrap();
    io::copy(&mut zstd::Decoder::new(bytes.as_slice()).unwrap(), &mut encoder).unwrap();
    encoder.finish().unwrap();
    assert_eq!(read_back(long).unwrap(), record);
}

#[test]
fn a_changed_program_is_never_packed() {
    let root = tempfile::tempdir().unwrap();
    let (store, record) = installed(root.path());
    let program = store.path("d").join("bin/postgres");
    crate::files::write_atomic(&program, "bin/pestgres".repeat(1000).as_bytes(), None).unwrap();
    let error = store.pack(&record, QUIET).unwrap_err();
    assert!(matches!(&error, PackedError::Corrupt { path, .. } if *path == program), "{error}");
    assert_eq!(fs::read_dir(root.path().join("packed")).unwrap().count(), 0);
}

#[test]
fn an_archive_that_was_cut_anywhere_is_torn_and_installs_nothing() {
    let root = tempfile::tempdir().unwrap();
    let (store, record) = installed(root.path());
    let whole = archive(&store.pack(&record, QUIET).unwrap());
    store.remove(&record).unwrap();
    for length in [0, 3, whole.len() / 2, whole.len() - 1] {
        let cut = io::Cursor::new(whole[..length].to_vec());
        let error = store.unpack(cut, "a.tar.zst", QUIET).unwrap_err().to_string();
        assert!(error.contains("a.tar.zst"), "{length}: {error}");
    }
    assert_eq!(fs::read_dir(root.path().join("sha256")).unwrap().count(), 0);
    assert_eq!(fs::read_dir(root.path().join("staging")).unwrap().count(), 0);
}

/// An archive whose record is changed by `change`, with the members of the true one.
fn forged(change: impl FnOnce(&mut Record)) -> Vec<u8> {
    let root = tempfile::tempdir().unwrap();
    let (store, mut record) = installed(root.path());
    change(&mut record);
    let mut tar = Builder::new(Encoder::new(Vec::new(), 1).unwrap());
    let text = record.text().unwrap();
    tar.append_data(&mut header(text.len() as u64, 0o644), RECORD, text.as_slice()).unwrap();
    for name in ["bin/postgres", "share/sql"] {
        let bytes = archive(&store.path("d").join(name));
        tar.append_data(&mut header(bytes.len() as u64, 0o755), name, bytes.as_slice()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}

#[test]
fn only_what_the_record_names_with_its_digest_is_taken() {
    assert!(read_back(forged(|_| ())).is_ok());
    let refusal = |change: fn(&mut Record)| read_back(forged(change)).unwrap_err().to_string();
    let other = refusal(|record| {
        record.files.get_mut(Path::new("share/sql")).unwrap().sha256 = "0".into();
    });
    assert!(other.contains("member share/sql has sha256"), "{other}");
    let more = refusal(|record| drop(record.files.remove(Path::new("share/sql"))));
    assert!(more.contains("share/sql is not in its record"), "{more}");
    let missing = refusal(|record| {
        let stamp = record.files[Path::new("share/sql")].clone();
        record.files.insert("share/more".into(), stamp);
    });
    assert!(missing.contains("share/more of its record is not in it"), "{missing}");
    let outside = refusal(|record| {
        let stamp = record.files[Path::new("share/sql")].clone();
        record.files.insert("../evil".into(), stamp);
    });
    assert!(outside.contains("leads outside"), "{outside}");
    let named = refusal(|record| record.digest = "../../etc".into());
    assert!(named.contains("names no digest"), "{named}");
}
