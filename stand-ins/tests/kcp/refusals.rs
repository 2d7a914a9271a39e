//! Starts that end by themselves: the exit code, the last line, and nothing touched.

use crate::lines::Lines;
use crate::slot::{Slot, command};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use tokio::io::AsyncReadExt;

/// Runs to the end: exit code and last line. It must not say a word on stdout.
async fn refused(root: &Path, extra: &[&str], knobs: &[(&str, &str)]) -> (Option<i32>, String) {
    let mut child = command(root, "http://127.0.0.1:1")
        .args(extra)
        .env("KCP_STANDIN_KUBE_APISERVER", "/bin/false")
        .envs(knobs.iter().copied())
        .spawn()
        .unwrap();
    let mut log = Lines::of(child.stderr.take().unwrap());
    let mut stdout = String::new();
    child.stdout.take().unwrap().read_to_string(&mut stdout).await.unwrap();
    assert_eq!(stdout, "");
    let code = child.wait().await.unwrap().code();
    (code, log.all().await.last().cloned().unwrap_or_default())
}

fn contents(root: &Path) -> BTreeMap<String, Vec<u8>> {
    let Ok(entries) = fs::read_dir(root) else { return BTreeMap::new() };
    entries
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_type().unwrap().is_file())
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect()
}

#[tokio::test]
async fn every_refused_set_of_files_ends_with_its_line_and_stays_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let whole = directory.path().join("whole");
    // A backend that ends at once: by then the five files are there.
    let (code, line) = refused(&whole, &[], &[]).await;
    assert_eq!(code, Some(1));
    assert!(line.starts_with("Error: the kube-apiserver behind the stand-in ended"), "{line}");

    let other = directory.path().join("other");
    refused(&other, &[], &[]).await;
    let other_key = fs::read(other.join("apiserver.key")).unwrap();
    let kubeconfig = fs::read(whole.join("admin.kubeconfig")).unwrap();
    let certificate = kubeconfig.windows(6).position(|window| window == b"data: ").unwrap() + 6;
    let half = &kubeconfig[..certificate + 802];
    let no_token =
        "Error: cannot create the 'admin.kubeconfig' file with an empty token for the shard-admin user";
    let stale = "Error: admin token in file \"{}/admin.kubeconfig\" is not valid anymore. Remove file \
                 \"{}/.admin-token-store\" and restart kcp";
    let pair = "Error: error creating self-signed certificates: error reading {}/";
    let cases: [(&str, Option<&[u8]>, &str, &str); 8] = [
        ("admin.kubeconfig", None, no_token, ""),
        ("admin.kubeconfig", Some(b""), no_token, ""),
        ("admin.kubeconfig", Some(half), "Error: illegal base64 data at input byte 800", ""),
        (".admin-token-store", Some(b"short"), stale, ""),
        ("apiserver.key", None, pair, "apiserver.key, certificate and key must be supplied as a pair"),
        ("apiserver.crt", None, pair, "apiserver.crt, certificate and key must be supplied as a pair"),
        ("apiserver.key", Some(&other_key), "Error: tls: private key does not match public key", ""),
        (
            "sa.key",
            Some(b"junk"),
            "Error: failed to parse service-account-issuer-key-file: error reading private key file {}/sa.key: data \
             does not contain a valid RSA or ECDSA private key",
            "",
        ),
    ];
    for (index, (name, bytes, start, end)) in cases.into_iter().enumerate() {
        let root = directory.path().join(index.to_string());
        fs::create_dir(&root).unwrap();
        for file in contents(&whole).into_keys().filter(|file| file != name) {
            fs::copy(whole.join(&file), root.join(&file)).unwrap();
        }
        if let Some(bytes) = bytes {
            fs::File::create(root.join(name)).unwrap().write_all(bytes).unwrap();
        }
        let before = contents(&root);
        let (code, line) = refused(&root, &[], &[]).await;
        let expected = format!("{start}{end}").replace("{}", &root.display().to_string());
        assert_eq!(code, Some(1), "{name}");
        assert!(line.starts_with(&expected), "{name}: {line}");
        assert_eq!(contents(&root), before, "{name}");
    }
}

#[tokio::test]
async fn a_wrong_flag_ends_before_anything_exists() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let ended = refused(&root, &["--no-such-flag"], &[]).await;
    assert_eq!(ended, (Some(1), "Error: unknown flag: --no-such-flag".to_owned()));
    assert!(!root.exists());
}

#[tokio::test]
async fn a_free_port_needs_port_zero_and_leaves_three_files() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let ended = refused(&root, &["--secure-port=6444"], &[]).await;
    let line = "Error: --secure-port=0 required if --experimental-bind-free-port is set";
    assert_eq!(ended, (Some(1), line.to_owned()));
    let files: Vec<String> = contents(&root).into_keys().collect();
    assert_eq!(files, ["apiserver.crt", "apiserver.key", "sa.key"]);
}

#[tokio::test]
async fn a_host_without_a_default_route_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let (code, line) = refused(&root, &[], &[("KCP_STANDIN_NO_DEFAULT_ROUTE", "1")]).await;
    assert_eq!(code, Some(1));
    assert_eq!(
        line,
        "Error: Unable to find suitable network address.error='no default routes found in \"/proc/net/route\" or \
         \"/proc/net/ipv6_route\"'. Try to set the AdvertiseAddress directly or provide a valid BindAddress to fix this."
    );
    assert_eq!(contents(&root).into_keys().collect::<Vec<_>>(), ["sa.key"]);
}

#[tokio::test]
async fn without_a_store_it_gives_up_as_kcp_does() {
    let directory = tempfile::tempdir().unwrap();
    let mut slot = Slot::start(directory.path().join("root"), "http://127.0.0.1:1", &[], &[]);
    assert_eq!(slot.exit().await, Some(1));
    let last = slot.log.all().await.last().cloned();
    assert_eq!(last.as_deref(), Some("Error: create api extensions: context deadline exceeded"));
}
