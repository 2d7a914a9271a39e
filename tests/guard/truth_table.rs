//! Each row of the truth table: what is refused, what is finished, what is tried again.

use super::real_stack::{self, Home, Kine, Postgres, user};
use super::*;
use std::os::unix::fs::MetadataExt;

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
        set_row(&postgres, serde_json::json!({"phase": row})).await;
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

/// The database lost its last commit in the same crash of the host.
#[tokio::test]
async fn a_file_that_outlived_its_row_claims_the_same_database_again_and_no_other() {
    let home = Home::new();
    let mut postgres = Postgres::start(&home).await;
    let guard = guard("demo", &home.data(), &postgres);
    passes(&guard).await;
    set_file(&home.data(), |record| record["phase"] = "created".into());
    postgres.sql("kine", "DELETE FROM berth.identity").await;
    passes(&guard).await;
    assert_eq!(
        (row(&postgres).await["phase"].clone(), file(&home.data())["phase"].clone()),
        ("settled".into(), "settled".into())
    );

    set_file(&home.data(), |record| record["phase"] = "created".into());
    postgres.stop().await;
    fs::rename(home.path().join("pg"), home.path().join("pg-lost")).unwrap();
    let _other = Postgres::start(&home).await;
    assert!(refusal(&guard).await.contains("DatastoreEmpty"));
}

#[tokio::test]
async fn a_database_made_anew_under_a_settled_directory_is_refused_and_nothing_is_written() {
    let home = Home::new();
    let mut postgres = Postgres::start(&home).await;
    let guard = guard("demo", &home.data(), &postgres);
    passes(&guard).await;
    let settled = file(&home.data());
    postgres.stop().await;
    fs::rename(home.path().join("pg"), home.path().join("pg-lost")).unwrap();
    let postgres = Postgres::start(&home).await;
    let _kine = Kine::start(&postgres).await;
    let error = refusal(&guard).await;
    assert!(error.contains("DatastoreEmpty") && error.contains("uid-of-demo"), "{error}");
    assert_eq!(file(&home.data()), settled);
    let schemas = "SELECT count(*)::text FROM pg_namespace WHERE nspname = 'berth'";
    assert_eq!(postgres.text("kine", schemas).await, "0");
}

#[tokio::test]
async fn a_dump_loaded_into_another_database_system_is_refused_and_both_systems_are_named() {
    let home = Home::new();
    let mut postgres = Postgres::start(&home).await;
    let guard = guard("demo", &home.data(), &postgres);
    passes(&guard).await;
    let (record, system) = (row(&postgres).await, "SELECT system_identifier::text FROM pg_control_system()");
    let first = postgres.text("kine", system).await;
    postgres.stop().await;
    fs::rename(home.path().join("pg"), home.path().join("pg-original")).unwrap();
    let postgres = Postgres::start(&home).await;
    postgres.sql("kine", "CREATE SCHEMA berth").await;
    let table = "CREATE TABLE berth.identity (only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row), record jsonb NOT NULL)";
    postgres.sql("kine", table).await;
    postgres.sql("kine", &format!("INSERT INTO berth.identity (record) VALUES ('{record}')")).await;
    let error = refusal(&guard).await;
    let second = postgres.text("kine", system).await;
    assert!(error.contains("ClonedDatabase") && error.contains(&first) && error.contains(&second), "{error}");
}

#[tokio::test]
async fn an_older_backup_of_either_half_is_refused() {
    let home = Home::new();
    let mut postgres = Postgres::start(&home).await;
    let _kine = Kine::start(&postgres).await;
    let (data, pg) = (home.data(), home.path().join("pg"));
    let guard = guard("demo", &data, &postgres);
    passes(&guard).await;
    add_a_key(&postgres).await;
    let old_file = fs::read(data.join("identity.json")).unwrap();
    postgres.stop().await;
    copy(&pg, &home.path().join("pg-backup"));
    postgres.resume().await;
    // Something happened since the backup that raised the epoch.
    set_row(&postgres, serde_json::json!({"epoch": 2})).await;
    set_file(&data, |record| record["epoch"] = 2.into());
    passes(&guard).await;

    let new_file = fs::read(data.join("identity.json")).unwrap();
    berth::files::write_atomic(&data.join("identity.json"), &old_file, user()).unwrap();
    let error = refusal(&guard).await;
    assert!(
        error.contains("CopiedDataDir") && error.contains("epoch 2") && error.contains("epoch 1"),
        "{error}"
    );

    berth::files::write_atomic(&data.join("identity.json"), &new_file, user()).unwrap();
    postgres.stop().await;
    fs::remove_dir_all(&pg).unwrap();
    fs::rename(home.path().join("pg-backup"), &pg).unwrap();
    postgres.resume().await;
    let error = refusal(&guard).await;
    assert!(
        error.contains("ClonedDatabase") && error.contains("epoch 2") && error.contains("epoch 1"),
        "{error}"
    );
}

#[tokio::test]
async fn the_swapped_databases_of_two_tenants_are_refused_on_both_sides() {
    let (homes, names) = ([Home::new(), Home::new()], ["demo", "other"]);
    let mut databases = [Postgres::start(&homes[0]).await, Postgres::start(&homes[1]).await];
    let guards = [0, 1].map(|at| guard(names[at], &homes[at].data(), &databases[at]));
    for at in [0, 1] {
        passes(&guards[at]).await;
        databases[at].stop().await;
    }
    let pg = [0, 1].map(|at| homes[at].path().join("pg"));
    let aside = homes[0].path().join("aside");
    for (from, to) in [(&pg[0], &aside), (&pg[1], &pg[0]), (&aside, &pg[1])] {
        fs::rename(from, to).unwrap();
    }
    for at in [0, 1] {
        databases[at].resume().await;
        let error = refusal(&guards[at]).await;
        assert!(error.contains("IdentityMismatch"), "{error}");
        assert!(error.contains("uid-of-demo") && error.contains("uid-of-other"), "{error}");
    }
}

#[tokio::test]
async fn a_directory_that_was_copied_or_moved_is_refused_also_with_its_inode_and_also_in_its_place() {
    let home = Home::new();
    let postgres = Postgres::start(&home).await;
    let data = home.data();
    passes(&guard("demo", &data, &postgres)).await;
    let inode = fs::metadata(&data).unwrap().ino();
    let elsewhere = home.path().join("elsewhere");
    let check = async |place: &Path, what: &str| {
        let error = refusal(&guard("demo", place, &postgres)).await;
        assert!(error.contains("CopiedDataDir") && error.contains(what), "{error}");
        assert!(error.contains(&format!("{} (inode {inode})", data.display())), "{error}");
    };
    copy(&data, &elsewhere);
    check(&elsewhere, "/elsewhere (inode").await;
    passes(&guard("demo", &data, &postgres)).await;

    // A snapshot keeps the inode, so a kept one proves nothing.
    let moved = home.path().join("moved");
    fs::rename(&data, &moved).unwrap();
    check(&moved, &format!("/moved (inode {inode})")).await;

    fs::rename(&elsewhere, &data).unwrap();
    check(&data, &format!("{} (inode {})", data.display(), fs::metadata(&data).unwrap().ino())).await;
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&moved, &data).unwrap();
    passes(&guard("demo", &data, &postgres)).await;
}

#[tokio::test]
async fn another_machine_is_refused_and_one_without_an_id_proves_nothing() {
    let home = Home::new();
    let postgres = Postgres::start(&home).await;
    let on = |machine: &str| {
        let machine_id = home.path().join(machine);
        IdentityGuard::new(GuardConfig { machine_id, ..config("demo", &home.data(), &postgres) })
    };
    for machine in ["m-one", "m-two"] {
        fs::write(home.path().join(machine), format!("{machine}\n")).unwrap();
    }
    passes(&on("m-one")).await;
    let error = refusal(&on("m-two")).await;
    assert!(error.contains("CopiedDataDir") && error.contains("m-one") && error.contains("m-two"), "{error}");
    passes(&on("no-such-file")).await;
    assert_eq!(file(&home.data())["machine_id"], "m-one", "what is not known today stays on record");
}

#[tokio::test]
async fn what_cannot_be_read_is_retried_and_never_taken_for_absent() {
    let home = Home::new();
    let mut postgres = Postgres::start(&home).await;
    let (data, hba) = (home.data(), home.path().join("pg/pg_hba.conf"));
    let guard = guard("demo", &data, &postgres);
    passes(&guard).await;
    let (row_before, file_before) = (row(&postgres).await, fs::read(data.join("identity.json")).unwrap());

    for torn in ["", "{", "[]", "{\"owner\": null}"] {
        berth::files::write_atomic(&data.join("identity.json"), torn.as_bytes(), user()).unwrap();
        let error = retry(&guard).await;
        assert!(error.contains("identity.json"), "{error}");
    }
    fs::remove_file(data.join("identity.json")).unwrap();
    fs::create_dir(data.join("identity.json")).unwrap();
    assert!(retry(&guard).await.contains("identity.json"));
    fs::remove_dir(data.join("identity.json")).unwrap();
    berth::files::write_atomic(&data.join("identity.json"), &file_before, user()).unwrap();

    // No permission.
    let allowed = fs::read(&hba).unwrap();
    berth::files::write_atomic(&hba, b"local all all reject\n", user()).unwrap();
    postgres.stop().await;
    postgres.resume().await;
    let error = retry(&guard).await;
    assert!(error.contains("28000"), "{error}");
    berth::files::write_atomic(&hba, &allowed, user()).unwrap();
    postgres.stop().await;
    postgres.resume().await;

    let away = home.path().join("away");
    fs::rename(&data, &away).unwrap();
    assert!(retry(&guard).await.contains("data directory"));
    fs::rename(&away, &data).unwrap();
    passes(&guard).await;
    assert_eq!(
        (row(&postgres).await, fs::read(data.join("identity.json")).unwrap()),
        (row_before, file_before)
    );
}
