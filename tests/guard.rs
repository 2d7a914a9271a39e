//! The identity guard on a real postgres and a real kine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test fails by panicking

mod real_stack;

use berth::guard::{GuardConfig, IdentityGuard, Owner};
use berth_actors::host::{Guard, PrepareError, WaitNote};
use real_stack::{Home, Kine, Postgres, user};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

fn owner(name: &str) -> Owner {
    Owner { cluster: name.to_owned(), uid: format!("uid-of-{name}") }
}

fn guard(name: &str, data_dir: &Path, postgres: &Postgres) -> IdentityGuard {
    IdentityGuard::new(GuardConfig {
        owner: owner(name),
        data_dir: data_dir.to_owned(),
        socket_dir: postgres.socket_dir().to_owned(),
        user: user(),
    })
}

async fn refusal(guard: &IdentityGuard) -> String {
    match guard.check(&WaitNote::default()).await {
        Err(PrepareError::Refused(reason)) => {
            assert!(reason.contains("see docs/operations.md, identity guard"), "{reason}");
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

/// What any Kubernetes leaves behind.
async fn add_a_key(postgres: &Postgres) {
    let columns = "(name, created, deleted, create_revision, prev_revision, lease, value)";
    let values = "('/registry/namespaces/default', 1, 0, 0, 0, 0, 'x')";
    postgres.sql("kine", &format!("INSERT INTO kine {columns} VALUES {values}")).await;
}

#[tokio::test]
async fn a_fresh_kine_is_a_first_boot_and_its_second_boot_is_equal() {
    let home = Home::new();
    let postgres = Postgres::start(&home).await;
    let _kine = Kine::start(&postgres).await;
    let data = home.data();
    real_stack::write_pki(&data.join("pki"));

    let first = guard("demo", &data, &postgres);
    passes(&first).await;
    let file = data.join("identity.json");
    let record: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(record["owner"]["uid"], "uid-of-demo");
    assert_eq!(record["phase"], "settled");
    assert_eq!(record["authorities"].as_object().unwrap().len(), 2);
    let meta = fs::metadata(&file).unwrap();
    assert_eq!(meta.mode() & 0o777, 0o600);
    if let Some(user) = user() {
        assert_eq!(meta.uid(), user.uid);
    }

    passes(&first).await;
    drop(first);
    add_a_key(&postgres).await;
    passes(&guard("demo", &data, &postgres)).await;
}

#[tokio::test]
async fn a_datastore_of_another_cluster_is_refused_and_both_are_named() {
    let home = Home::new();
    let postgres = Postgres::start(&home).await;
    let data = home.data();
    passes(&guard("demo", &data, &postgres)).await;

    let error = refusal(&guard("other", &data, &postgres)).await;
    assert!(error.contains("IdentityMismatch"), "{error}");
    assert!(error.contains("uid-of-demo") && error.contains("uid-of-other"), "{error}");

    let empty = home.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let error = refusal(&guard("other", &empty, &postgres)).await;
    assert!(error.contains("DataDirNotOurs") && error.contains("uid-of-demo"), "{error}");
    assert!(!empty.join("identity.json").exists());
}

#[tokio::test]
async fn keys_without_an_identity_are_refused() {
    let home = Home::new();
    let postgres = Postgres::start(&home).await;
    let _kine = Kine::start(&postgres).await;
    add_a_key(&postgres).await;
    let data = home.data();
    let error = refusal(&guard("demo", &data, &postgres)).await;
    assert!(error.contains("UnclaimedDatastore"), "{error}");
    assert!(!data.join("identity.json").exists());
}

#[tokio::test]
async fn a_lost_row_is_refused_with_keys_and_without() {
    let home = Home::new();
    let postgres = Postgres::start(&home).await;
    let _kine = Kine::start(&postgres).await;
    let guard = guard("demo", &home.data(), &postgres);
    passes(&guard).await;
    postgres.sql("kine", "DELETE FROM berth.identity").await;
    assert!(refusal(&guard).await.contains("DatastoreEmpty"));
    add_a_key(&postgres).await;
    assert!(refusal(&guard).await.contains("IdentityRowMissing"));
}

#[tokio::test]
async fn a_first_boot_cut_short_is_finished() {
    let home = Home::new();
    let postgres = Postgres::start(&home).await;
    let guard = guard("demo", &home.data(), &postgres);
    passes(&guard).await;
    // Killed after the row, and after the file.
    for phases in [("claimed", None), ("claimed", Some("created")), ("settled", Some("created"))] {
        let (row, file) = phases;
        let set = format!("UPDATE berth.identity SET record = record || '{{\"phase\":\"{row}\"}}'");
        postgres.sql("kine", &set).await;
        let path = home.data().join("identity.json");
        match file {
            None => fs::remove_file(&path).unwrap(),
            Some(phase) => {
                let text = fs::read_to_string(&path).unwrap().replace("settled", phase);
                berth::files::write_atomic(&path, text.as_bytes(), user()).unwrap();
            }
        }
        passes(&guard).await;
        assert!(fs::read_to_string(&path).unwrap().contains("settled"), "{phases:?}");
    }
}

#[tokio::test]
async fn a_database_that_cannot_answer_is_retried_and_never_taken_for_empty() {
    let home = Home::new();
    let mut postgres = Postgres::start(&home).await;
    let guard = guard("demo", &home.data(), &postgres);
    passes(&guard).await;

    postgres.stop().await;
    let error = retry(&guard).await;
    assert!(error.contains("demo") && error.contains(postgres.socket_dir().to_str().unwrap()), "{error}");
    postgres.resume().await;
    passes(&guard).await;

    postgres.sql("kine", "UPDATE berth.identity SET record = '{\"owner\": 7}'").await;
    assert!(retry(&guard).await.contains("berth.identity"));
    postgres.sql("postgres", "DROP DATABASE kine WITH (FORCE)").await;
    assert!(retry(&guard).await.contains("3D000"));
}

#[tokio::test]
async fn a_copied_data_directory_is_refused() {
    let home = Home::new();
    let postgres = Postgres::start(&home).await;
    passes(&guard("demo", &home.data(), &postgres)).await;
    let copy = home.path().join("copy");
    fs::create_dir(&copy).unwrap();
    fs::copy(home.data().join("identity.json"), copy.join("identity.json")).unwrap();
    let error = refusal(&guard("demo", &copy, &postgres)).await;
    assert!(error.contains("CopiedDataDir") && error.contains("/copy"), "{error}");
}

#[tokio::test]
async fn a_new_certificate_authority_is_refused() {
    let home = Home::new();
    let postgres = Postgres::start(&home).await;
    let guard = guard("demo", &home.data(), &postgres);
    passes(&guard).await;
    // One that appears after the first boot is learnt, one that changes is not.
    real_stack::write_pki(&home.data().join("pki"));
    passes(&guard).await;
    real_stack::write_pki(&home.data().join("pki"));
    assert!(refusal(&guard).await.contains("CaMismatch"));
}

#[tokio::test]
async fn a_second_guard_on_the_same_tenant_is_refused_until_the_first_is_gone() {
    let home = Home::new();
    let mut postgres = Postgres::start(&home).await;
    let first = guard("demo", &home.data(), &postgres);
    let second = guard("demo", &home.data(), &postgres);
    passes(&first).await;
    let error = refusal(&second).await;
    let holder = format!("berth pid {}", std::process::id());
    assert!(error.contains("DatabaseInUse") && error.contains(&holder), "{error}");

    // A lock lost with the database is taken again at the next check.
    postgres.stop().await;
    postgres.resume().await;
    passes(&first).await;
    assert!(refusal(&second).await.contains("DatabaseInUse"));

    drop(first);
    passes(&second).await;
}
