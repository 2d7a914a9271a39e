use super::*;
use crate::assets::record::{Recipe, set_mode};
use crate::layout::Layout;
use crate::{assets::pins::Pin, files};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

struct Home {
    _state: tempfile::TempDir,
    layout: Layout,
}

impl Home {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let layout = Layout::new(state.path().to_owned(), None);
        files::private_dir(&layout.kcp(), None).unwrap();
        Self { layout, _state: state }
    }

    fn store(&self) -> Store {
        Store::open(&self.layout.assets()).unwrap()
    }

    /// A program under this name, of what `bytes` are.
    fn install(&self, component: &str, key: &str, bytes: &[u8]) -> PathBuf {
        let store = self.store();
        let staged = store.stage().unwrap();
        let program = staged.tree.join(component);
        files::write_atomic(&program, bytes, None).unwrap();
        set_mode(&program, 0o755).unwrap();
        let recipe = Recipe {
            component: component.into(),
            version: "v1".into(),
            key: key.into(),
            made_by: "a test".into(),
        };
        store.install(&staged, recipe, None).unwrap().join(component)
    }

    fn needed(&self, pins: &[Pin], configured: &[PathBuf]) -> Vec<(String, Option<String>)> {
        let store = self.store();
        let usage = Usage::look(&store, &self.layout, pins, configured).unwrap();
        let assets = assets(&store, &usage).unwrap();
        assets
            .into_iter()
            .map(|asset| (asset.component.unwrap_or_default(), asset.needed.map(|needed| needed.to_string())))
            .collect()
    }

    /// The components that stay.
    fn collect(&self, pins: &[Pin]) -> Vec<String> {
        let store = self.store();
        let usage = Usage::look(&store, &self.layout, pins, &[]).unwrap();
        collect(&store, &assets(&store, &usage).unwrap()).unwrap();
        drop(store);
        self.store().records().map(|record| record.component.clone()).collect()
    }
}

fn pin(key: &str) -> Pin {
    Pin { component: "kine".into(), version: "v1".into(), key: key.into(), digests: vec![] }
}

#[test]
fn what_is_pinned_or_configured_or_on_record_stays_and_the_rest_goes_packed_and_extracted() {
    let home = Home::new();
    home.install("kine", "pinned", b"kine");
    let bao = home.install("bao", "configured", b"bao");
    let old = home.install("old", "unneeded", b"old");
    let kcp = home.install("kcp", "released", b"kcp");
    let releases = format!(r#"{{"chosen": {{"program": "{}", "version": "v1"}}}}"#, kcp.display());
    files::write_atomic(&home.layout.kcp().join("releases.json"), releases.as_bytes(), None).unwrap();
    let store = home.store();
    let records: Vec<_> = store.records().cloned().collect();
    for record in &records {
        store.pack(record, &|_, _| ()).unwrap();
    }
    drop(store);

    let needed = home.needed(&[pin("pinned")], &[bao]);
    let because = |name: &str| needed.iter().find(|(component, _)| component == name).unwrap().1.clone();
    assert_eq!(because("kine").as_deref(), Some("in the catalogue"));
    assert_eq!(because("bao").as_deref(), Some("named by the configuration"));
    assert_eq!(because("kcp").as_deref(), Some("named by kcp's releases"));
    assert_eq!(because("old"), None);

    let mut left = home.collect(&[pin("pinned")]);
    left.sort();
    assert_eq!(left, ["kcp", "kine"]);
    assert!(!old.exists());
    assert_eq!(std::fs::read_dir(home.layout.assets().join("packed")).unwrap().count(), 2);
}

#[test]
fn what_runs_stays_under_whatever_name_it_runs_and_goes_once_it_has_ended() {
    let home = Home::new();
    // A shell waits for its input without any other program.
    let shell = files::trusted::bytes("/bin/sh").unwrap();
    let program = home.install("kine", "unneeded", &shell);
    let mut running = Command::new(&program)
        .arg0("something else")
        .args(["-c", "echo up; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = [0; 3];
    std::io::Read::read_exact(running.stdout.as_mut().unwrap(), &mut said).unwrap();

    let needed = home.needed(&[], &[]);
    assert_eq!(needed, [("kine".to_owned(), Some(format!("runs (pid {})", running.id())))]);
    assert_eq!(home.collect(&[]), ["kine"]);
    drop(running.stdin.take());
    running.wait().unwrap();
    assert!(home.collect(&[]).is_empty());
    assert!(!program.exists());
}

#[test]
fn what_a_daemon_may_start_again_stays_although_it_does_not_run() {
    let home = Home::new();
    let program = home.install("kine", "unneeded", b"kine");
    home.store().hold([program.as_path(), Path::new("/opt/kcp")]).unwrap();
    assert_eq!(home.needed(&[], &[]), [("kine".to_owned(), Some("a daemon may start it".to_owned()))]);
    assert_eq!(home.collect(&[]), ["kine"]);
}

#[test]
fn what_has_a_lasting_name_is_held_by_it_and_stays_for_it() {
    let home = Home::new();
    let program = home.install("berth", "unneeded", b"berth");
    let name = home.store().name("berth", &program).unwrap();
    assert_eq!(home.needed(&[], &[]), [("berth".to_owned(), Some("named by the store".to_owned()))]);
    assert_eq!(home.collect(&[]), ["berth"]);

    home.store().hold([name.as_path()]).unwrap();
    std::fs::remove_file(&name).unwrap();
    assert_eq!(home.needed(&[], &[]), [("berth".to_owned(), Some("a daemon may start it".to_owned()))]);
}

#[test]
fn a_torn_asset_goes_and_torn_releases_stop_everything() {
    let home = Home::new();
    let program = home.install("kine", "pinned", b"kine");
    files::write_atomic(&program.with_file_name("asset.json"), b"{", None).unwrap();
    assert_eq!(home.needed(&[pin("pinned")], &[]), [(String::new(), None)]);
    files::write_atomic(&home.layout.kcp().join("releases.json"), b"{", None).unwrap();
    let error = Usage::look(&home.store(), &home.layout, &[], &[]).unwrap_err().to_string();
    assert!(error.contains("releases.json"), "{error}");
}
