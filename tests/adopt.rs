//! A refusal of the identity guard in a running daemon: what an operator sees, the way out, and a daemon killed on it (I1, I3).

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test that panics has failed; it may wait for a process; its files need not outlive a crash"
)]

mod common;

use berth::control::api::{EventQuery, StampedEvent};
use berth::tenant::postgres::databases;
use berth_actors::status::{ChainState, ChildState, TreeStatus};
use common::{Dev, Home, all_ready, api, child, host, pids, tenant};
use futures::StreamExt;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

/// The same files in a directory of another inode: a backup that was restored.
fn restore(data: &Path) {
    let copy = data.with_extension("copy");
    let copied = Command::new("cp").arg("-a").arg(data).arg(&copy).status().unwrap();
    assert!(copied.success());
    let before = fs::metadata(data).unwrap().ino();
    fs::remove_dir_all(data).unwrap();
    fs::rename(&copy, data).unwrap();
    assert_ne!(fs::metadata(data).unwrap().ino(), before);
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn is_refused(status: &TreeStatus) -> bool {
    tenant(status, "demo").state == ChainState::Refused
}

async fn sql(home: &Home, statement: &str) {
    let sockets = home.layout().sockets("demo").unwrap();
    let client = databases::connect(&sockets, "postgres", "kine").await.unwrap();
    client.batch_execute(statement).await.unwrap();
}

fn epoch(home: &Home) -> u64 {
    let file = fs::read(home.layout().cluster("demo").join("identity.json")).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&file).unwrap();
    assert_eq!(record["phase"], "settled");
    record["epoch"].as_u64().unwrap()
}

/// Everything of the Kubernetes is unspawned; what stands before the guard runs.
fn kubernetes_is_unspawned(status: &TreeStatus) {
    for name in ["kube-apiserver", "kube-controller-manager"] {
        assert_eq!(child(tenant(status, "demo"), name).pid, None, "{name}");
    }
    for name in ["postgres", "openbao", "kine"] {
        assert_eq!(child(tenant(status, "demo"), name).state, ChildState::Ready, "{name}");
    }
}

#[tokio::test]
async fn a_refused_cluster_is_shown_adopted_by_command_and_its_adoption_survives_the_daemon() {
    let home = Home::new();
    let fault = home.state().with_file_name("fault");
    let dev = home.dev(&[("BERTH_FAULT", fault.to_str().unwrap())]);
    dev.ready().await;
    let data = home.layout().cluster("demo");
    let maps = api::config_maps(api::client(&data.join("kubeconfig"), None).await, "default");
    api::create_config_map(&maps, "kept", "yes").await;
    let running = home.berth(&["cluster", "adopt", "demo", "--yes"]);
    assert!(
        running.status.code() == Some(5) && said(&running).contains("its Kubernetes runs"),
        "{running:?}"
    );

    home.ok(&["cluster", "stop", "demo"]);
    let stopped = home.berth(&["cluster", "adopt", "demo", "--yes"]);
    assert!(stopped.status.code() == Some(5) && said(&stopped).contains("cluster start demo"), "{stopped:?}");
    restore(&data);
    let started = home.berth(&["cluster", "start", "demo"]);
    assert!(!started.status.success() && said(&started).contains("CopiedDataDir"), "{started:?}");
    kubernetes_is_unspawned(&dev.until("the refusal", is_refused).await);
    let shown = home.ok(&["status"]);
    for word in ["refused", "CopiedDataDir", "uid", "berth cluster adopt demo", "docs/operations.md"] {
        assert!(shown.contains(word), "{word} is not in: {shown}");
    }

    let unasked = home.berth(&["cluster", "adopt", "demo"]);
    assert_eq!(unasked.status.code(), Some(2), "{unasked:?}");
    for word in ["What differs", "CopiedDataDir", "What changes", "to epoch 2", "--yes"] {
        assert!(said(&unasked).contains(word), "{word} is not in: {unasked:?}");
    }
    assert_eq!(epoch(&home), 1, "nothing was changed");

    // The daemon dies with the row written and the file not.
    fs::write(&fault, "identity-adopted 0 die").unwrap();
    assert!(!home.berth(&["cluster", "adopt", "demo", "--yes"]).status.success());
    assert!(!dev.ended().success());
    assert_eq!(epoch(&home), 1);
    let dev = home.dev(&[]);
    dev.ready().await;
    assert_eq!(epoch(&home), 2, "the next start has finished it");
    assert_eq!(api::read_config_map(&maps, "kept").await, "yes");
    assert!(dev.stop().success());
    assert_eq!(host::processes_below(&home.state()), []);
}

/// What the identity guard says about `demo`'s API server, until `last` is said.
async fn told_until(home: &Home, trigger: impl AsyncFnOnce(), last: &str) -> Vec<String> {
    let mut events = Box::pin(home.client().events(EventQuery { follow: true }).await.unwrap());
    trigger().await;
    let (mut text, mut told) = (Vec::new(), Vec::new());
    let wait = async {
        while let Some(Ok(chunk)) = events.next().await {
            text.extend_from_slice(&chunk);
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                let Ok(StampedEvent { event, .. }) = serde_json::from_slice(&line) else { continue };
                if event.subject == "demo/kube-apiserver" {
                    told.push(event.what);
                }
            }
            if told.iter().any(|what| what.contains("lost its hold"))
                && told.last().is_some_and(|what| what == last)
            {
                return;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(120), wait).await.expect("it says so in time");
    told
}

#[tokio::test]
async fn the_guard_looks_again_at_each_restart_of_kubernetes_and_when_its_session_dies() {
    let home = Home::new();
    let dev = home.dev(&[]);
    let before = dev.ready().await;

    let end_session = async || {
        sql(
            &home,
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name LIKE 'berth pid%'",
        )
        .await;
    };
    told_until(&home, end_session, "still ready").await;
    let held = "DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted) \
                THEN RAISE 'nobody holds it'; END IF; END $$";
    sql(&home, held).await;
    let after = dev.ready().await;
    assert_eq!(pids(tenant(&after, "demo")), pids(tenant(&before, "demo")), "nothing was restarted for it");

    // Nothing is looked at while all is well; the next start of Kubernetes finds it.
    sql(&home, "UPDATE berth.identity SET record = record || '{\"epoch\": 7}'").await;
    refused_after_a_death(&home, &dev).await;
    let told = home.ok(&["cluster", "adopt", "demo", "--yes"]);
    assert!(told.contains("adopted"), "{told}");
    dev.until("everything to be ready", all_ready).await;
    assert_eq!(epoch(&home), 8);
    assert!(dev.stop().success());
}

async fn refused_after_a_death(home: &Home, dev: &Dev<'_>) {
    let status = dev.ready().await;
    host::signal(child(tenant(&status, "demo"), "kube-apiserver").pid.unwrap(), Signal::KILL);
    let status = dev.until("the refusal", is_refused).await;
    let reason = tenant(&status, "demo").reason.clone().unwrap();
    assert!(reason.contains("epoch 7 in the database") && reason.contains("(epoch 1)"), "{reason}");
    kubernetes_is_unspawned(&status);
    let restarts = child(tenant(&status, "demo"), "kube-apiserver").restarts;
    assert!(restarts <= 1, "a refusal is no restart loop: {restarts}");
    let other = status.front.target.is_some();
    assert!(other, "nobody else notices");
    assert!(home.ok(&["cluster", "list"]).contains("refused"));
}
