use super::*;
use crate::assets::download::tests::{Mirror, ok};
use crate::assets::record::sha256_of;
use crate::files;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Where each component came from, and what was warned of.
#[derive(Default)]
struct Told {
    origins: Mutex<Vec<Origin>>,
    warnings: Mutex<Vec<String>>,
}

impl Progress for Told {
    fn started(&self, _: &str, _: &str) {}
    fn advanced(&self, _: &str, _: Advance) {}
    fn finished(&self, _: &str, _: Duration, origin: Origin) {
        self.origins.lock().unwrap().push(origin);
    }
    fn warned(&self, text: &str) {
        self.warnings.lock().unwrap().push(text.to_owned());
    }
}

/// One start of a daemon, as far as kcp goes.
async fn start(root: &Path, catalogue: &Catalogue, told: &Told) -> Result<Option<PathBuf>, ProvisionError> {
    let store = Arc::new(Store::open(root)?);
    let overrides = &Overrides::default();
    Provisioning { catalogue, store: &store, overrides, progress: told }.operators("kcp").await
}

fn pack(root: &Path) {
    let store = Store::open(root).unwrap();
    let record = store.records().next().unwrap().clone();
    store.pack(&record, &|_, _| ()).unwrap();
}

#[tokio::test]
async fn what_a_mirror_serves_is_fetched_once_then_lies_in_the_store_and_comes_back_from_rest() {
    const PROGRAM: &[u8] = b"kcp";
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("assets");
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let mirror = Mirror::serve(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        ok(PROGRAM)
    })
    .await;
    let (ca, sample) = (dir.path().join("ca.pem"), dir.path().join("sample"));
    files::write_atomic(&ca, mirror.ca.as_bytes(), None).unwrap();
    files::write_atomic(&sample, PROGRAM, None).unwrap();
    let with_pin = |sha256| {
        let content = Content::of_a_program("kcp", sha256, None);
        let source = Source::Https { url: mirror.url("/kcp"), ca: Some(ca.clone()), content };
        let entry = Entry { version: "v1".into(), licence: String::new(), note: String::new(), source };
        Catalogue::embedded().unwrap().overlaid([("kcp".to_owned(), entry)].into())
    };
    let catalogue = with_pin(sha256_of(&sample).unwrap());
    let told = Told::default();

    let program = start(&root, &catalogue, &told).await.unwrap().unwrap();
    assert_eq!(files::trusted::bytes(&program).unwrap(), PROGRAM);
    assert_eq!(start(&root, &catalogue, &told).await.unwrap(), Some(program.clone()));
    pack(&root);
    std::fs::remove_dir_all(program.parent().unwrap()).unwrap();
    assert_eq!(start(&root, &catalogue, &told).await.unwrap(), Some(program.clone()));
    assert_eq!(files::trusted::bytes(&program).unwrap(), PROGRAM);
    assert_eq!(*told.origins.lock().unwrap(), [Origin::Fetched, Origin::Store, Origin::Unpacked]);
    assert_eq!((asked.load(Ordering::Relaxed), told.warnings.lock().unwrap().len()), (1, 0));

    let other = start(&root, &with_pin("0".repeat(64)), &told).await.unwrap_err().to_string();
    assert!(other.contains("download-kcp has sha256") && other.contains("is pinned: refused"), "{other}");
}

#[tokio::test]
async fn a_torn_archive_is_told_and_what_only_an_operator_has_is_then_not_there() {
    let dir = tempfile::tempdir().unwrap();
    let catalogue = Catalogue::embedded().unwrap();
    let told = Told::default();
    assert_eq!(start(dir.path(), &catalogue, &told).await.unwrap(), None);
    let pin = pins::of("kcp", catalogue.entry("kcp").unwrap()).unwrap();
    let store = Store::open(dir.path()).unwrap();
    let staged = store.stage().unwrap();
    files::write_atomic(&staged.tree.join("kcp"), &[7; 4096], None).unwrap();
    let recipe =
        Recipe { component: "kcp".into(), version: pin.version, key: pin.key, made_by: "a test".into() };
    let asset = store.install(&staged, recipe, None).unwrap();
    drop(store);
    assert_eq!(start(dir.path(), &catalogue, &told).await.unwrap(), Some(asset.join("kcp")));

    pack(dir.path());
    std::fs::remove_dir_all(&asset).unwrap();
    let packed = std::fs::read_dir(dir.path().join("packed")).unwrap().next().unwrap().unwrap().path();
    let mut bytes = files::trusted::bytes(&packed).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    files::write_atomic(&packed, &bytes, None).unwrap();
    assert_eq!(start(dir.path(), &catalogue, &told).await.unwrap(), None);
    let warnings = told.warnings.lock().unwrap();
    assert!(warnings[0].contains("is torn") && warnings[0].contains(".tar.zst"), "{warnings:?}");
}
