//! The cloud controller manager against a real kube-apiserver, started the way its blueprint says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking
#![allow(clippy::disallowed_methods, reason = "what a test reads nobody planted")]

#[path = "../real_stack/mod.rs"]
mod real_stack;
#[allow(dead_code, reason = "it is shared with the test of a thousand Nodes")]
mod tenant;

use berth::ccm;
use berth_actors::host::{Blueprint, GateError, WaitNote};
use kube::api::{Patch, PatchParams};
use real_stack::{ApiServer, DEADLINE, Process, line, user};
use serde_json::json;
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};
use tenant::{LABEL, Tenant, is_tainted, provider_id, taints};
use tokio::time::timeout;

#[tokio::test]
async fn the_nodes_of_the_snapshot_are_brought_in_line_and_no_others() {
    let tenant = Tenant::start().await;
    let _controller = tenant.controller().await;
    assert_eq!(fs::read_to_string(tenant.snapshot()).unwrap(), "[]\n");

    // A Node that is registered before the snapshot knows it is picked up when the snapshot changes.
    tenant.register("n1", None).await;
    line(&tenant.log(), 0, "not in the snapshot").await;
    assert!(is_tainted(&tenant.nodes().get("n1").await.unwrap()));
    tenant.know("n1");
    let n1 = tenant.in_line("n1").await;
    assert_eq!(provider_id(&n1), Some("socialweb://demo/n1"));
    assert!(taints(&n1).contains(&"somebody.else/taint"), "{:?}", taints(&n1));

    // One of another cloud keeps its providerID.
    tenant.know("n2");
    tenant.register("n2", Some("aws:///i-1")).await;
    let n2 = tenant.in_line("n2").await;
    assert_eq!(provider_id(&n2), Some("aws:///i-1"));
    line(&tenant.log(), 0, "providerID of another cloud").await;

    // A label that gets lost comes back.
    let lost = json!({"metadata": {"labels": {LABEL: null}}});
    tenant.nodes().patch("n1", &PatchParams::default(), &Patch::Merge(lost)).await.unwrap();
    let n1 = tenant.in_line("n1").await;

    // Every change of the snapshot looks at every Node; one in line is not written again.
    tenant.know("n3");
    tenant.register("n3", None).await;
    tenant.in_line("n3").await;
    let again = tenant.nodes().get("n1").await.unwrap();
    assert_eq!(again.metadata.resource_version, n1.metadata.resource_version);

    // One that registers anew under its name is a new Node.
    tenant.nodes().delete("n3", &kube::api::DeleteParams::default()).await.unwrap();
    tenant.register("n3", None).await;
    tenant.in_line("n3").await;
}

#[tokio::test]
async fn a_snapshot_that_cannot_be_read_patches_nothing_until_it_is_repaired() {
    let tenant = Tenant::start().await;
    tenant.know("n1");
    let _controller = tenant.controller().await;
    berth::files::write_atomic(&tenant.snapshot(), b"[{\"name\":", user()).unwrap();
    let created = tenant.register("n1", None).await;
    line(&tenant.log(), 0, "cannot be read as a list of instances").await;
    let now = tenant.nodes().get("n1").await.unwrap();
    assert_eq!(now.metadata.resource_version, created.metadata.resource_version);
    berth::files::write_atomic(&tenant.snapshot(), b"[{\"name\":\"n1\"}]", user()).unwrap();
    tenant.in_line("n1").await;
}

#[tokio::test]
async fn sigterm_ends_it_within_a_second_with_the_api_server_gone() {
    let tenant = Tenant::start().await;
    let controller = tenant.controller().await;
    tenant.api.kill();
    line(&tenant.home.path().join("ccm.log"), 0, "the watch on Nodes was interrupted").await;
    let asked = Instant::now();
    controller.signal(rustix::process::Signal::TERM);
    assert_eq!(controller.exit_code().await, Some(0));
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
}

/// The API server is killed under it: its word from the start says nothing about now.
#[tokio::test]
async fn the_gate_is_closed_while_its_watch_is_broken() {
    let tenant = Tenant::start().await;
    let _controller = tenant.controller().await;
    tenant.gate(0).await.expect("asked again, it says the same");
    let (blueprint, log) = (tenant.blueprint(), tenant.log());
    let Tenant { home, api, kine, postgres: _postgres } = tenant;
    let address = api.address;
    api.kill();
    line(&log, 0, "lost its watch").await;
    let (running, note) = (Tenant::running(log, 0), WaitNote::default());
    let mut gate = Box::pin(blueprint.ready(&running, &note));
    while note.get().is_empty() {
        assert!(futures::poll!(&mut gate).is_pending());
        tokio::task::yield_now().await;
    }
    let _api = ApiServer::again(&home, &kine, address).await;
    timeout(DEADLINE, gate).await.expect("it watches again").unwrap();
}

#[tokio::test]
async fn rights_that_come_late_are_waited_for() {
    let tenant = Tenant::start().await;
    let spec = tenant.prepared().await;
    let role = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/socialweb:cloud-controller-manager";
    let delete = http::Request::delete(role).body(Vec::new()).unwrap();
    tenant.api.admin().request_text(delete).await.unwrap();
    let controller = Process::of_spec(&spec);
    line(&spec.output, 0, "(403)").await;
    tenant.prepared().await;
    tenant.gate(0).await.unwrap();
    drop(controller);
}

#[tokio::test]
async fn an_admins_credential_is_refused_before_anything_is_read() {
    let tenant = Tenant::start().await;
    let spec = tenant.prepared().await;
    let minted = ccm::credential_file(&tenant.home.data());
    let text = fs::read_to_string(&minted).unwrap();
    // By its certificate, by its path, and, where the file gives nothing away, by whom the API server takes it for.
    let cases = [
        ("admin", minted.clone(), "no admin certificate"),
        ("cloud-controller-manager", tenant.home.data().join("admin.kubeconfig"), "no admin file"),
        ("stranger", minted.clone(), "the API server's review"),
    ];
    for (who, path, rule) in cases {
        let kubeconfig =
            if who == "cloud-controller-manager" { text.clone() } else { as_user(&tenant, &text, who) };
        berth::files::write_atomic(&path, kubeconfig.as_bytes(), user()).unwrap();
        let mut spec = spec.clone();
        let variable = "SOCIALWEB_CLOUDCONTROLLERMANAGER_TENANT_KUBECONFIG";
        spec.env.insert(variable.to_owned(), path.display().to_string());
        let offset = fs::metadata(&spec.output).map_or(0, |meta| meta.len());
        let controller = Process::of_spec(&spec);
        let Err(GateError::Fatal(reason)) = tenant.gate(offset).await else { panic!("{who} was let in") };
        assert!(reason.contains(rule) && reason.contains(path.to_str().unwrap()), "{reason}");
        assert_eq!(controller.exit_code().await, Some(78));
    }
    let log = fs::read_to_string(&spec.output).unwrap();
    assert!(!log.contains("PRIVATE KEY") && !log.contains("LS0tLS1CRUdJTi"), "{log}");
}

#[tokio::test]
async fn a_renewed_credential_is_taken_up_without_a_restart() {
    let tenant = Tenant::start().await;
    let controller = tenant.controller().await;
    let server = format!("https://{}", tenant.api.address);
    let now = berth::clock::now();
    let renew =
        |at| ccm::renew(&tenant.home.data(), &tenant.credentials(), &server, user(), at).unwrap().minted;
    assert!(!renew(now));
    // A clock far ahead mints one that is not valid yet: the program keeps trying, and the next one heals it.
    assert!(renew(now + time::Duration::days(40)));
    line(&tenant.log(), 0, "the API server cannot say who we are yet").await;
    assert!(renew(now));
    tenant.know("n1");
    tenant.register("n1", None).await;
    tenant.in_line("n1").await;
    controller.signal(rustix::process::Signal::TERM);
    assert_eq!(controller.exit_code().await, Some(0));
}

#[tokio::test]
async fn it_listens_on_nothing_and_shows_no_secret() {
    let tenant = Tenant::start().await;
    let controller = tenant.controller().await;
    let proc = Path::new("/proc").join(controller.pid().to_string());
    let command_line = fs::read(proc.join("cmdline")).unwrap();
    assert_eq!(command_line.split(|byte| *byte == 0).count(), 2, "one argument and the end after its NUL");
    let listening =
        fs::read_to_string("/proc/net/tcp").unwrap() + &fs::read_to_string("/proc/net/tcp6").unwrap();
    // State 0A is LISTEN; field 9 is the socket's inode.
    let listeners: HashSet<String> = listening
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.get(3) == Some(&"0A"))
        .map(|fields| format!("socket:[{}]", fields[9]))
        .collect();
    for fd in fs::read_dir(proc.join("fd")).unwrap() {
        let target = fs::read_link(fd.unwrap().path()).unwrap_or_default();
        assert!(!listeners.contains(target.to_string_lossy().as_ref()), "{} listens", target.display());
    }
}

/// The minted kubeconfig with another certificate of the tenant's client CA in it.
fn as_user(tenant: &Tenant, minted: &str, name: &str) -> String {
    use base64::Engine;
    let encode = |suffix: &str| {
        let bytes = fs::read(tenant.home.data().join(format!("pki/{name}.{suffix}"))).unwrap();
        base64::engine::general_purpose::STANDARD.encode(bytes)
    };
    let replace = |line: &str| match line.trim_start().split_once(':') {
        Some(("client-certificate-data", _)) => format!("    client-certificate-data: {}", encode("crt")),
        Some(("client-key-data", _)) => format!("    client-key-data: {}", encode("key")),
        _ => line.to_owned(),
    };
    minted.lines().map(replace).collect::<Vec<_>>().join("\n") + "\n"
}
