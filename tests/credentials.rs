//! New credentials under a running cluster, on real components: what is interrupted, what goes on working, what is needed no
//! more.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a test that panics has failed; it prints what was done; its files need not survive a crash"
)]

mod common;

use berth::control::api::Credentials;
use berth::file_events::FileEvents;
use berth::https::Https;
use berth::tenant::postgres::databases;
use berth_actors::status::TreeStatus;
use common::{Dev, Home, api, child, pids, tenant};
use http::Method;
use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenRequest};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, Config, ResourceExt};
use rcgen::{CertificateParams, Issuer, KeyPair};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const SECRET: &str = "never-in-clear-text";

fn data(home: &Home) -> PathBuf {
    home.layout().cluster("demo")
}

fn demo(status: &TreeStatus) -> BTreeMap<String, u32> {
    pids(tenant(status, "demo")).into_iter().collect()
}

fn replaced(before: &BTreeMap<String, u32>, after: &BTreeMap<String, u32>) -> Vec<String> {
    before.keys().filter(|name| before[*name] != after[*name]).cloned().collect()
}

fn check(home: &Home) -> Credentials {
    serde_json::from_str(&home.ok(&["cluster", "certs", "check", "demo", "--json"])).unwrap()
}

async fn admin(home: &Home) -> Client {
    api::client(&data(home).join("kubeconfig"), None).await
}

/// The name of each file and its first bytes' digest, of everything that must change with `--now`.
fn leaves(home: &Home) -> BTreeMap<String, Vec<u8>> {
    ["apiserver", "bao", "admin", "kube-controller-manager", "front-proxy-client"]
        .into_iter()
        .flat_map(|name| [format!("{name}.crt"), format!("{name}.key")])
        .map(|name| (name.clone(), fs::read(data(home).join("pki").join(&name)).unwrap()))
        .collect()
}

/// Puts a pair into the place of a server's that has a hundred days left. Returns the certificate.
fn age(pki: &Path, name: &str) -> String {
    let read = |file: &str| fs::read_to_string(pki.join(file)).unwrap();
    let authority = KeyPair::from_pem(&read("server-ca.key")).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&read("server-ca.crt"), authority).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
    params.not_before = berth::clock::now() - time::Duration::days(1);
    params.not_after = berth::clock::now() + time::Duration::days(100);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![rcgen::KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    for (extension, text) in [("key", key.serialize_pem()), ("crt", certificate.clone())] {
        // In place, so that its owner stays.
        fs::write(pki.join(format!("{name}.{extension}")), text).unwrap();
    }
    certificate
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_replaced_while_requests_go_on_and_only_who_cannot_reload_restarts() {
    let home = Home::new();
    let dev = home.dev(&[]);
    let before = demo(&dev.ready().await);
    assert!(check(&home).is_well());

    // In its last third: the daemon's own look replaces it.
    let served = data(&home).join("pki/apiserver.crt");
    let mut events = FileEvents::of(&served).unwrap();
    let short = age(served.parent().unwrap(), "apiserver");
    let is_replaced = async {
        while fs::read_to_string(&served).unwrap() == short {
            events.changed().await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(120), is_replaced)
        .await
        .expect("the daemon looks once a minute has passed");
    let shown = |credentials: &Credentials| {
        let server = credentials.credentials.iter().find(|one| one.file == "pki/apiserver.crt").unwrap();
        server.left_seconds.unwrap() / 86_400
    };
    assert_eq!(shown(&check(&home)), 364);
    assert_eq!(demo(&dev.ready().await), before, "nothing restarts for it");
    let old = leaves(&home);

    // Each request on a connection of its own: one that is kept open would prove nothing.
    let kubeconfig = data(&home).join("kubeconfig");
    let stale = fs::read(&kubeconfig).unwrap();
    let stale_file = data(&home).join("stale.kubeconfig");
    fs::write(&stale_file, stale).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let asking = tokio::spawn({
        let over = over.clone();
        let file = stale_file.clone();
        async move {
            let (mut answered, mut failed) = (0_u32, Vec::new());
            while !over.load(Ordering::Relaxed) {
                let asked = api::client(&file, None).await.apiserver_version().await;
                match asked {
                    Ok(_) => answered += 1,
                    Err(error) => failed.push(error.to_string()),
                }
            }
            (answered, failed)
        }
    });
    let said = home.ok(&["cluster", "certs", "rotate", "demo", "--now"]);
    over.store(true, Ordering::Relaxed);
    let (answered, failed) = asking.await.unwrap();
    println!("{answered} requests meanwhile\n{said}");
    assert!(failed.is_empty() && answered > 0, "{failed:?}");
    assert!(said.contains("kube-apiserver shows its new certificate"), "{said}");

    let after = demo(&dev.ready().await);
    assert_eq!(replaced(&before, &after), ["kube-controller-manager", "openbao"]);
    let new = leaves(&home);
    assert_eq!(old.keys().filter(|name| old[*name] == new[*name]).count(), 0);
    assert!(check(&home).is_well());
    assert!(admin(&home).await.apiserver_version().await.is_ok(), "the new administrator");

    let again = home.ok(&["cluster", "certs", "rotate", "demo"]);
    assert!(again.contains("nothing was due"), "{again}");

    let key = data(&home).join("pki/sa.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let checked = home.berth(&["cluster", "certs", "check", "demo"]);
    assert_eq!(checked.status.code(), Some(8));
    let status = home.ok(&["status"]);
    assert!(status.contains("demo: pki/sa.key: others may read"), "{status}");
    assert!(dev.stop().success());
}

async fn token(client: &Client) -> String {
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let request = TokenRequest::default();
    accounts
        .create_token_request("default", &PostParams::default(), &request)
        .await
        .unwrap()
        .status
        .unwrap()
        .token
        .unwrap()
}

/// Who the API server takes the bearer for.
async fn bearer(home: &Home, token: &str) -> Result<String, kube::Error> {
    let file = kube::config::Kubeconfig::read_from(data(home).join("kubeconfig")).unwrap();
    let mut config =
        Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await.unwrap();
    config.auth_info = kube::config::AuthInfo { token: Some(token.to_owned().into()), ..Default::default() };
    let reviews: Api<SelfSubjectReview> = Api::all(Client::try_from(config).unwrap());
    let review = reviews.create(&PostParams::default(), &SelfSubjectReview::default()).await?;
    Ok(review.status.unwrap().user_info.unwrap().username.unwrap())
}

/// The name of the key that signed it.
fn signer(token: &str) -> String {
    use base64::Engine;
    let head =
        base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap();
    serde_json::from_slice::<serde_json::Value>(&head).unwrap()["kid"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_the_key_before_are_good_until_its_time_and_new_ones_are_of_the_new_key() {
    let home = Home::new();
    let dev = home.dev(&[]);
    let before = demo(&dev.ready().await);
    let first = token(&admin(&home).await).await;
    home.ok(&["cluster", "certs", "rotate", "demo", "--service-account-key"]);
    let after = demo(&dev.ready().await);
    assert_eq!(replaced(&before, &after), ["kube-apiserver", "kube-controller-manager"]);

    let second = token(&admin(&home).await).await;
    assert_ne!(signer(&first), signer(&second));
    for token in [&first, &second] {
        assert_eq!(bearer(&home, token).await.unwrap(), "system:serviceaccount:default:default");
    }
    assert!(check(&home).is_well());

    // A leak: the tokens of both are good for nothing.
    home.ok(&["cluster", "certs", "rotate", "demo", "--service-account-key", "--keep-old-for", "0"]);
    dev.ready().await;
    let third = token(&admin(&home).await).await;
    assert!(bearer(&home, &third).await.is_ok());
    for token in [&first, &second] {
        let refused = bearer(&home, token).await;
        assert!(matches!(&refused, Err(kube::Error::Api(status)) if status.code == 401), "{refused:?}");
    }
    assert!(dev.stop().success());
}

async fn sealed_with(home: &Home) -> BTreeSet<String> {
    let sockets = home.layout().sockets("demo").unwrap();
    let client = databases::connect(&sockets, "kine", "kine").await.unwrap();
    let newest = "SELECT DISTINCT ON (name) value FROM kine WHERE name LIKE '/registry/secrets/%' \
                  OR name LIKE '/registry/configmaps/%' ORDER BY name, id DESC";
    let rows = client.query(newest, &[]).await.unwrap();
    let mark = |value: &[u8]| String::from_utf8_lossy(value).split(':').take(5).collect::<Vec<_>>().join(":");
    rows.iter().filter_map(|row| row.get::<_, Option<Vec<u8>>>(0)).map(|value| mark(&value)).collect()
}

fn key_names(home: &Home) -> Vec<String> {
    let text = fs::read(data(home).join("pki/encryption.json")).unwrap();
    let config: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let keys = config["resources"][0]["providers"][0]["secretbox"]["keys"].as_array().unwrap().clone();
    keys.iter().map(|key| key["name"].as_str().unwrap().to_owned()).collect()
}

fn no_value_in_a_log(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            no_value_in_a_log(&path);
        } else {
            let text = fs::read(&path).unwrap();
            let found = text.windows(SECRET.len()).any(|window| window == SECRET.as_bytes());
            assert!(!found, "{} holds a Secret's value", path.display());
        }
    }
}

/// A daemon that dies at `place` while it rotates `what`.
fn dies_at(home: &Home, dev: Dev<'_>, armed: &Path, place: &str, what: &str) {
    fs::write(armed, format!("{place} 0 die")).unwrap();
    let asked = home.berth(&["cluster", "certs", "rotate", "demo", what]);
    assert!(!asked.status.success(), "it was to die at {place}");
    assert_eq!(dev.ended().signal(), Some(9));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_an_encryption_keys_rotation_that_daemons_died_over_the_old_key_is_needed_no_more() {
    let home = Home::new();
    let armed = home.state().parent().unwrap().join("fault");
    let environment = [("BERTH_FAULT", armed.to_str().unwrap())];
    let dev = home.dev(&environment);
    dev.ready().await;
    let secrets: Api<Secret> = Api::namespaced(admin(&home).await, "default");
    let maps: Api<ConfigMap> = Api::namespaced(admin(&home).await, "default");
    for number in 0..30 {
        let mut secret = Secret::default();
        secret.metadata.name = Some(format!("s{number}"));
        secret.immutable = Some(number % 2 == 0);
        secret.string_data = Some([("password".to_owned(), format!("{SECRET}-{number}"))].into());
        secrets.create(&PostParams::default(), &secret).await.unwrap();
    }
    let mut map = ConfigMap::default();
    map.metadata.name = Some("m".to_owned());
    map.data = Some([("key".to_owned(), SECRET.to_owned())].into());
    maps.create(&PostParams::default(), &map).await.unwrap();
    assert_eq!(sealed_with(&home).await, BTreeSet::from(["k8s:enc:secretbox:v1:k1".to_owned()]));
    let before = demo(&dev.ready().await);

    dies_at(&home, dev, &armed, "key-advanced", "--encryption-key");
    assert_eq!(key_names(&home), ["k1", "k2"]);
    let dev = home.dev(&environment);
    dev.ready().await;
    dies_at(&home, dev, &armed, "sealed-anew", "--encryption-key");
    assert_eq!(key_names(&home), ["k2", "k1"]);
    let dev = home.dev(&environment);
    dev.ready().await;
    let said = home.ok(&["cluster", "certs", "rotate", "demo", "--encryption-key"]);
    println!("{said}");
    assert_eq!(key_names(&home), ["k2"]);
    assert_eq!(sealed_with(&home).await, BTreeSet::from(["k8s:enc:secretbox:v1:k2".to_owned()]));
    let after = demo(&dev.ready().await);
    assert_eq!(replaced(&before, &after), [""; 0], "the API server reloads by itself");

    // It knows only the new key now.
    home.ok(&["cluster", "restart", "demo"]);
    dev.ready().await;
    let secrets: Api<Secret> = Api::namespaced(admin(&home).await, "default");
    let all = secrets.list(&ListParams::default()).await.unwrap();
    for secret in all.iter().filter(|secret| secret.name_any().starts_with('s')) {
        let value = &secret.data.as_ref().unwrap()["password"].0;
        assert_eq!(value, format!("{SECRET}-{}", &secret.name_any()[1..]).as_bytes());
    }
    assert_eq!(all.iter().count(), 30);
    no_value_in_a_log(&data(&home).join("log"));
    assert!(!dev.output().contains(SECRET));
    assert!(check(&home).is_well());
    assert!(dev.stop().success());
}

/// One request to the vault as its operator.
async fn vault(
    home: &Home,
    status: &TreeStatus,
    method: Method,
    path: &str,
    body: &str,
) -> serde_json::Value {
    let address = child(tenant(status, "demo"), "openbao").address.unwrap();
    let https = Https::new(&fs::read(data(home).join("pki/server-ca.crt")).unwrap(), None).unwrap();
    let deadline = Duration::from_secs(10);
    let password = fs::read_to_string(data(home).join("bao/ops-password")).unwrap();
    let login = serde_json::json!({ "password": password }).to_string().into_bytes();
    let url = format!("https://{address}/v1/auth/userpass/login/ops");
    let (_, answer) = https.send(Method::POST, &url, &[], login, deadline).await.unwrap();
    let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    let token = answer["auth"]["client_token"].as_str().unwrap().to_owned();
    let url = format!("https://{address}/v1/{path}");
    let headers = [("X-Vault-Token", token.as_str())];
    let (code, answer) =
        https.send(method, &url, &headers, body.as_bytes().to_vec(), deadline).await.unwrap();
    assert!(code.is_success(), "{path}: {code}");
    serde_json::from_slice(&answer).unwrap_or_default()
}

fn seal_keys(home: &Home) -> Vec<String> {
    let entries = fs::read_dir(data(home).join("bao")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut keys: Vec<_> =
        names.filter(|name| Path::new(name).extension().is_some_and(|ext| ext == "key")).collect();
    keys.sort();
    keys
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vault_opens_with_its_new_seal_key_alone_and_has_what_was_put_into_it() {
    let home = Home::new();
    let armed = home.state().parent().unwrap().join("fault");
    let environment = [("BERTH_FAULT", armed.to_str().unwrap())];
    let dev = home.dev(&environment);
    let status = dev.ready().await;
    for file in ["bao/unseal.key", "bao/ops-password", "bao/bao.hcl", "pki/bao.key", "pki/bao.crt"] {
        let mode = data(&home).join(file).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{file}");
    }
    vault(&home, &status, Method::POST, "kv/data/kept", r#"{"data":{"value":"kept"}}"#).await;

    dies_at(&home, dev, &armed, "seal-key-made", "--seal-key");
    assert_eq!(seal_keys(&home), ["unseal-2.key", "unseal.key"]);
    let dev = home.dev(&environment);
    dev.ready().await;
    dies_at(&home, dev, &armed, "root-sealed-anew", "--seal-key");
    let dev = home.dev(&environment);
    dev.ready().await;
    println!("{}", home.ok(&["cluster", "certs", "rotate", "demo", "--seal-key"]));
    assert_eq!(seal_keys(&home), ["unseal-2.key"]);
    let config = fs::read_to_string(data(&home).join("bao/bao.hcl")).unwrap();
    assert!(config.contains("berth-seal-2") && !config.contains("previous"), "{config}");
    let status = dev.ready().await;
    let kept = vault(&home, &status, Method::GET, "kv/data/kept", "").await;
    assert_eq!(kept["data"]["data"]["value"], "kept");
    assert!(check(&home).is_well());
    assert!(dev.stop().success());
}
