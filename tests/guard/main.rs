//! The identity guard on a real postgres and a real kine: the truth table, the hold, the adoption.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that panics has failed; the files it writes need not outlive a crash"
)]

mod adoption;
mod hold;
#[path = "../real_stack/mod.rs"]
mod real_stack;
mod truth_table;

use berth::guard::{GuardConfig, IdentityGuard, MACHINE_ID, Owner};
use berth_actors::host::{Guard, PrepareError, WaitNote};
use real_stack::{Postgres, user};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn owner(name: &str) -> Owner {
    Owner { cluster: name.to_owned(), uid: format!("uid-of-{name}") }
}

fn config(name: &str, data_dir: &Path, postgres: &Postgres) -> GuardConfig {
    GuardConfig {
        owner: owner(name),
        data_dir: data_dir.to_owned(),
        socket_dir: postgres.socket_dir().to_owned(),
        user: user(),
        machine_id: MACHINE_ID.into(),
    }
}

fn guard(name: &str, data_dir: &Path, postgres: &Postgres) -> IdentityGuard {
    IdentityGuard::new(config(name, data_dir, postgres))
}

async fn refusal(guard: &IdentityGuard) -> String {
    match guard.check(&WaitNote::default()).await {
        Err(PrepareError::Refused(reason)) => {
            assert!(reason.ends_with("see docs/operations.md, identity guard"), "{reason}");
            assert!(reason.contains("berth cluster "), "it names the way out: {reason}");
            assert!(!reason.contains("PRIVATE") && reason.lines().count() == 1, "{reason}");
            reason
        }
        other => panic!("expected a refusal, got {other:?}"),
    }
}

async fn retry(guard: &IdentityGuard) -> String {
    match guard.check(&WaitNote::default()).await {
        Err(PrepareError::Retry(reason)) => reason,
        other => panic!("expected a retry, got {other:?}"),
    }
}

async fn passes(guard: &IdentityGuard) {
    assert_eq!(guard.check(&WaitNote::default()).await, Ok(()));
}

const KEY: &str = "/registry/namespaces/default";

/// What any Kubernetes leaves behind.
async fn add_a_key(postgres: &Postgres) {
    let columns = "(name, created, deleted, create_revision, prev_revision, lease, value)";
    let values = format!("('{KEY}', 1, 0, 0, 0, 0, 'x')");
    postgres.sql("kine", &format!("INSERT INTO kine {columns} VALUES {values}")).await;
}

/// The record in `identity.json`.
fn file(data: &Path) -> Value {
    serde_json::from_slice(&fs::read(data.join("identity.json")).unwrap()).unwrap()
}

/// Writes it as no guard would.
fn set_file(data: &Path, change: impl FnOnce(&mut Value)) {
    let mut record = file(data);
    change(&mut record);
    let path = data.join("identity.json");
    berth::files::write_atomic(&path, record.to_string().as_bytes(), user()).unwrap();
}

/// The record in the row.
async fn row(postgres: &Postgres) -> Value {
    serde_json::from_str(&postgres.text("kine", "SELECT record::text FROM berth.identity").await).unwrap()
}

/// Merges `change` into the row as no guard would.
async fn set_row(postgres: &Postgres, change: Value) {
    postgres.sql("kine", &format!("UPDATE berth.identity SET record = record || '{change}'")).await;
}

fn copy(from: &Path, to: &Path) {
    let copied = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(copied.success());
}
