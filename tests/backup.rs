//! A cluster in one file, on real components: taken under writes, restored under another name beside the living original and
//! after its deletion; and every file that is no backup, refused by name.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that panics has failed; its files need not outlive a crash"
)]

mod common;

use berth::https::Https;
use berth_actors::status::ChainState;
use common::{Dev, Home, all_ready, api, child, host, tenant};
use http::Method;
use kube::api::{Api, DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command to its end while the runtime goes on.
async fn berth(home: &Home, arguments: &[&str]) -> Output {
    let mut command = home.command(arguments);
    tokio::task::spawn_blocking(move || command.stdin(std::process::Stdio::null()).output().unwrap())
        .await
        .unwrap()
}

async fn ok(home: &Home, arguments: &[&str]) -> String {
    let output = berth(home, arguments).await;
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

async fn kubernetes(home: &Home, cluster: &str) -> kube::Client {
    api::client(&home.layout().cluster(cluster).join("kubeconfig"), None).await
}

fn secrets(client: kube::Client) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"));
    Api::namespaced_with(client, "default", &resource)
}

async fn create_secret(client: kube::Client) {
    let object = serde_json::from_value(serde_json::json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sealed"}, "stringData": {"key": "in clear"},
    }));
    secrets(client).create(&PostParams::default(), &object.unwrap()).await.unwrap();
}

/// What the Secret holds, as the API tells it: base64.
async fn read_secret(client: kube::Client) -> String {
    secrets(client).get("sealed").await.unwrap().data["data"]["key"].as_str().unwrap().to_owned()
}

/// A request to a cluster's vault as its ops user.
async fn vault(
    home: &Home,
    dev: &Dev<'_>,
    cluster: &str,
    method: Method,
    path: &str,
    body: &str,
) -> serde_json::Value {
    let status = dev.until("the control API", |_| true).await;
    let address = child(tenant(&status, cluster), "openbao").address.unwrap();
    let data = home.layout().cluster(cluster);
    let https = Https::new(&fs::read(data.join("pki/server-ca.crt")).unwrap(), None).unwrap();
    let password = fs::read_to_string(data.join("bao/ops-password")).unwrap();
    let login = serde_json::json!({ "password": password }).to_string();
    let answer =
        send(&https, Method::POST, &format!("https://{address}/v1/auth/userpass/login/ops"), None, &login)
            .await;
    let token = answer["auth"]["client_token"].as_str().unwrap().to_owned();
    send(&https, method, &format!("https://{address}/v1/{path}"), Some(&token), body).await
}

/// Writes ConfigMaps one after the other until it is told to stop.
struct Writer {
    acknowledged: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    task: tokio::task::JoinHandle<()>,
}

impl Writer {
    fn start(maps: Api<DynamicObject>) -> Self {
        let (acknowledged, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (count, end) = (Arc::clone(&acknowledged), Arc::clone(&stop));
        let task = tokio::spawn(async move {
            while !end.load(Ordering::Relaxed) {
                let next = count.load(Ordering::Relaxed);
                api::create_config_map(&maps, &format!("written-{next}"), &next.to_string()).await;
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
        Self { acknowledged, stop, task }
    }

    fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::Relaxed)
    }

    async fn stop(self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await.unwrap();
        self.acknowledged.load(Ordering::Relaxed)
    }
}

/// Everything acknowledged before the backup is there, and what came later is there without a gap.
async fn holds_all(home: &Home, dev: &Dev<'_>, cluster: &str, before: usize, written: usize) {
    let client = kubernetes(home, cluster).await;
    assert_eq!(read_secret(client.clone()).await, "aW4gY2xlYXI=");
    let maps = api::config_maps(client, "default");
    assert_eq!(api::read_config_map(&maps, "kept").await, "yes");
    let mut there = 0;
    while there < written && maps.get_opt(&format!("written-{there}")).await.unwrap().is_some() {
        there += 1;
    }
    assert!(there >= before, "{there} of {before} acknowledged before the backup began");
    let list = maps.list(&kube::api::ListParams::default()).await.unwrap();
    let kept =
        list.items.iter().filter(|map| map.metadata.name.as_ref().unwrap().starts_with("written-")).count();
    assert_eq!(kept, there, "one moment: nothing later without what came before it");
    let answer = vault(home, dev, cluster, Method::GET, "kv/data/probe", "").await;
    assert_eq!(answer["data"]["data"]["key"], "kept in the vault");
    api::create_config_map(&maps, "after-the-restore", "yes").await;
}

fn epoch(home: &Home, cluster: &str) -> (u64, String) {
    let file = fs::read(home.layout().cluster(cluster).join("identity.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&file).unwrap();
    assert_eq!(record["phase"], "settled");
    (record["epoch"].as_u64().unwrap(), record["owner"]["cluster"].as_str().unwrap().to_owned())
}

/// What lies beside the clusters, and was left there.
fn leftovers(home: &Home) -> Vec<PathBuf> {
    let entries = fs::read_dir(home.layout().clusters()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(".berth-")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_backed_up_under_writes_and_restored_beside_itself_and_after_its_deletion() {
    let home = Home::new();
    let dev = home.dev(&[]);
    dev.ready().await;
    let client = kubernetes(&home, "demo").await;
    let maps = api::config_maps(client.clone(), "default");
    api::create_config_map(&maps, "kept", "yes").await;
    create_secret(client).await;
    vault(&home, &dev, "demo", Method::POST, "kv/data/probe", r#"{"data":{"key":"kept in the vault"}}"#)
        .await;

    let file = home.state().with_file_name("demo.backup");
    let path = file.to_str().unwrap();
    let writer = Writer::start(maps);
    while writer.acknowledged() < 20 {
        tokio::task::yield_now().await;
    }
    let before = writer.acknowledged();
    let told = ok(&home, &["cluster", "backup", "demo", path]).await;
    let written = writer.stop().await;
    assert!(told.contains("is backed up in"), "{told}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&file).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o600);
    let again = berth(&home, &["cluster", "backup", "demo", path]).await;
    assert!(!again.status.success() && said(&again).contains("exists"), "{again:?}");
    let verified = ok(&home, &["cluster", "verify", path]).await;
    assert!(verified.contains("whole; demo (uid ") && verified.contains("epoch 1"), "{verified}");
    every_file_that_is_none_is_refused_by_name(&home, &file).await;

    // The original lives on beside it.
    ok(&home, &["cluster", "restore", "copy", path]).await;
    holds_all(&home, &dev, "copy", before, written).await;
    assert_eq!(epoch(&home, "copy"), (2, "copy".to_owned()));
    assert_eq!(epoch(&home, "demo"), (1, "demo".to_owned()));
    let status = dev.until("both to be ready", all_ready).await;
    assert_eq!(tenant(&status, "demo").state, ChainState::Ready);
    let taken = berth(&home, &["cluster", "restore", "demo", path]).await;
    assert!(taken.status.code() == Some(5) && said(&taken).contains("already"), "{taken:?}");

    ok(&home, &["cluster", "pause", "copy"]).await;
    assert!(ok(&home, &["cluster", "list"]).await.contains("paused"));
    let paused = berth(&home, &["cluster", "backup", "copy", &format!("{path}.2")]).await;
    assert!(paused.status.code() == Some(5) && said(&paused).contains("resume copy"), "{paused:?}");
    ok(&home, &["cluster", "resume", "copy"]).await;

    // The copy may be backed up as any other, and the name of the original be used again once it is gone.
    ok(&home, &["cluster", "delete", "demo", "--yes"]).await;
    let second = format!("{path}.3");
    ok(&home, &["cluster", "backup", "copy", &second]).await;
    ok(&home, &["cluster", "restore", "demo", &second]).await;
    let maps = api::config_maps(kubernetes(&home, "demo").await, "default");
    assert_eq!(api::read_config_map(&maps, "after-the-restore").await, "yes");
    assert_eq!(epoch(&home, "demo"), (3, "demo".to_owned()));
    assert_eq!(leftovers(&home), [""; 0].map(PathBuf::from));
    assert!(dev.stop().success());
    assert_eq!(host::processes_below(&home.state()), []);
}

async fn every_file_that_is_none_is_refused_by_name(home: &Home, whole: &Path) {
    let bytes = fs::read(whole).unwrap();
    let torn = &bytes[..bytes.len() - 1];
    let plain = zstd::decode_all(bytes.as_slice()).unwrap();
    let rewritten = |from: &str, to: &str| {
        let mut plain = plain.clone();
        let at = plain.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
        plain[at..at + from.len()].copy_from_slice(to.as_bytes());
        zstd::encode_all(plain.as_slice(), 1).unwrap()
    };
    let newer = rewritten(r#"{"format":1"#, r#"{"format":2"#);
    let changed = rewritten("-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEy-----");
    let cases: [(&str, &[u8], &str); 4] = [
        ("torn", torn, "TornBackup"),
        ("foreign", b"PGDMP...", "NotABackup"),
        ("newer", &newer, "NewerFormat: it has format 2"),
        ("changed", &changed, "WrongDigest"),
    ];
    for (name, bytes, word) in cases {
        let path = whole.with_extension(name);
        fs::write(&path, bytes).unwrap();
        let refused = berth(home, &["cluster", "restore", "never", path.to_str().unwrap()]).await;
        assert!(!refused.status.success() && said(&refused).contains(word), "{name}: {refused:?}");
        assert!(said(&refused).contains(path.to_str().unwrap()), "{refused:?}");
        // The daemon believes no command line: past it, the same answer.
        let piece: Result<axum::body::Bytes, std::io::Error> = Ok(axum::body::Bytes::copy_from_slice(bytes));
        let answer = home.client().restore("never", futures::stream::iter([piece])).await.unwrap_err();
        assert!(answer.to_string().contains(word), "{name}: {answer}");
    }
    assert!(!home.layout().cluster("never").exists());
    assert!(!home.layout().clusters().join("never.json").exists());
}

async fn send(
    https: &Https,
    method: Method,
    url: &str,
    token: Option<&str>,
    body: &str,
) -> serde_json::Value {
    let headers: Vec<_> = token.map(|token| ("X-Vault-Token", token)).into_iter().collect();
    let patience = std::time::Duration::from_secs(10);
    let (status, answer) =
        https.send(method, url, &headers, body.as_bytes().to_vec(), patience).await.unwrap();
    assert!(status.is_success(), "{url}: {status}");
    serde_json::from_slice(&answer).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_or_restore_whose_daemon_dies_leaves_nothing_or_a_whole_cluster() {
    let home = Home::new();
    let fault = home.state().with_file_name("fault");
    let armed = [("BERTH_FAULT", fault.to_str().unwrap())];
    let file = home.state().with_file_name("demo.backup");
    let path = file.to_str().unwrap();
    let dev = home.dev(&armed);
    dev.ready().await;
    let maps = api::config_maps(kubernetes(&home, "demo").await, "default");
    api::create_config_map(&maps, "kept", "yes").await;

    fs::write(&fault, "backup-copied 0 die").unwrap();
    let cut = berth(&home, &["cluster", "backup", "demo", path]).await;
    assert!(!cut.status.success() && !said(&cut).is_empty(), "{cut:?}");
    assert!(!dev.ended().success());
    let beside = fs::read_dir(file.parent().unwrap()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!beside.into_iter().any(|name| name.to_string_lossy().contains("backup")), "nothing is left");

    let dev = home.dev(&armed);
    dev.ready().await;
    ok(&home, &["cluster", "backup", "demo", path]).await;
    fs::write(&fault, "restore-placed 0 die").unwrap();
    assert!(!berth(&home, &["cluster", "restore", "copy", path]).await.status.success());
    assert!(!dev.ended().success());
    assert!(home.layout().cluster("copy").exists(), "it died with the data in their place");

    let dev = home.dev(&armed);
    let status = dev.ready().await;
    assert!(status.tenants.iter().all(|tenant| tenant.name == "demo"), "what was not finished is gone");
    assert!(!home.layout().cluster("copy").exists() && !home.layout().clusters().join("copy.json").exists());
    assert_eq!(leftovers(&home), [""; 0].map(PathBuf::from));
    fs::write(&fault, "restore-done 0 die").unwrap();
    assert!(!berth(&home, &["cluster", "restore", "copy", path]).await.status.success());
    assert!(!dev.ended().success());

    let dev = home.dev(&[]);
    let status = dev.until("both to be ready", |status| all_ready(status) && status.tenants.len() == 2).await;
    assert_eq!(tenant(&status, "copy").state, ChainState::Ready, "what was finished is taken up");
    let maps = api::config_maps(kubernetes(&home, "copy").await, "default");
    assert_eq!(api::read_config_map(&maps, "kept").await, "yes");
    ok(&home, &["cluster", "pause", "copy"]).await;
    assert!(dev.stop().success());
    let dev = home.dev(&[]);
    let status = dev
        .until("demo alone to run", |status| {
            status.front.target.is_some()
                && status
                    .tenants
                    .iter()
                    .any(|tenant| tenant.name == "demo" && tenant.state == ChainState::Ready)
        })
        .await;
    let copy = tenant(&status, "copy");
    assert!(copy.state == ChainState::Down && copy.paused.is_some(), "{copy:?}");
    assert!(dev.stop().success());
    assert_eq!(host::processes_below(&home.state()), []);
}
