use super::*;
use crate::assets::catalogue::Entry;
use crate::assets::catalogue::Source;
use crate::assets::operators;
use std::path::PathBuf;

const QUIET: &dyn Fn(u64, u64) = &|_, _| ();

struct Home {
    dir: tempfile::TempDir,
    store: Store,
}

impl Home {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(&dir.path().join("assets")).unwrap();
        Self { dir, store }
    }

    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.dir.path().join(name);
        crate::files::write_atomic(&path, bytes, None).unwrap();
        path
    }

    fn catalogue(&self) -> Catalogue {
        operators::catalogue(&self.dir.path().join("assets")).unwrap()
    }

    fn import(&self, file: &Path, named: Option<&Named>) -> Result<Record, ImportError> {
        import(&self.store, &self.catalogue(), file, named, QUIET)
    }
}

fn named(component: &str, version: Option<&str>, file: &Path) -> Named {
    let sha256 = sha256_of(file).unwrap();
    Named { component: component.into(), version: version.map(Into::into), sha256, member: None }
}

#[test]
fn a_file_that_no_catalogue_names_is_refused_with_its_digest() {
    let home = Home::new();
    let file = home.file("kcp", b"kcp");
    let error = home.import(&file, None).unwrap_err().to_string();
    assert!(error.contains(&sha256_of(&file).unwrap()) && error.contains("--sha256"), "{error}");
    let mut wrong = named("kcp", None, &file);
    wrong.sha256 = "0".repeat(64);
    assert!(home.import(&file, Some(&wrong)).unwrap_err().to_string().contains("is pinned: refused"));
    let etcd = named("etcd", None, &file);
    assert!(home.import(&file, Some(&etcd)).unwrap_err().to_string().contains("kcp, kine"));
}

#[test]
fn a_program_in_place_of_a_build_is_found_where_the_build_would_be() {
    let home = Home::new();
    let file = home.file("kine", b"kine");
    let record = home.import(&file, Some(&named("kine", None, &file))).unwrap();
    let catalogue = home.catalogue();
    let pin = pins::of("kine", catalogue.entry("kine").unwrap()).unwrap();
    assert_eq!((record.key, record.version.as_str()), (pin.key.clone(), "v0.17.5"));

    let other = home.import(&file, Some(&named("kine", Some("v9"), &file))).unwrap();
    assert_ne!(other.key, pin.key, "another version is not what the catalogue asks for");
}

#[test]
fn a_file_that_the_operators_catalogue_pins_says_itself_what_it_is() {
    let home = Home::new();
    let file = home.file("download", &zstd::encode_all(b"kcp".as_slice(), 1).unwrap());
    let content = Content::of_a_program("kcp", sha256_of(&file).unwrap(), None);
    let source = Source::Https { url: "https://mirror.example/kcp".into(), ca: None, content };
    let entry = Entry { version: "v0.34.0".into(), licence: String::new(), note: String::new(), source };
    operators::add(&home.dir.path().join("assets"), "kcp", entry).unwrap();
    let record = home.import(&file, None).unwrap();
    assert_eq!((record.component.as_str(), record.version.as_str()), ("kcp", "v0.34.0"));
    assert_eq!(record.made_by, "imported from download");
    let program = home.store.path(&record.digest).join("kcp");
    assert_eq!(crate::files::trusted::bytes(program).unwrap(), b"kcp");
}

#[test]
fn what_one_store_packed_another_one_takes() {
    let (one, other) = (Home::new(), Home::new());
    let file = one.file("kine", b"kine");
    let record = one.import(&file, Some(&named("kine", None, &file))).unwrap();
    let packed = one.store.pack(&record, QUIET).unwrap();
    let taken = other.import(&packed, Some(&named("kine", None, &packed))).unwrap();
    assert_eq!(taken, record);
    let wrong = other.import(&packed, Some(&named("kcp", None, &packed))).unwrap_err().to_string();
    assert!(wrong.contains("is a packed kine, not kcp"), "{wrong}");
}
