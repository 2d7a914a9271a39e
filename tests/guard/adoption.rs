//! The explicit way out of each refusal, what it leaves alone, and what no word overrides.

use super::real_stack::{self, Home, Kine, Postgres, user};
use super::*;
use berth_actors::data_adoption::{AdoptionError, AdoptionPlan, Consent, UNCLAIMED};
use serde_json::json;

fn consent(plan: &AdoptionPlan) -> Consent {
    Consent { plan: plan.digest.clone(), take_over: plan.take_over.clone() }
}

/// A tenant in operation: keys in its database, CAs on disk, its epoch `1`.
struct Demo {
    home: Home,
    postgres: Postgres,
    _kine: Kine,
}

impl Demo {
    async fn new() -> Self {
        let home = Home::new();
        let postgres = Postgres::start(&home).await;
        let kine = Kine::start(&postgres).await;
        real_stack::write_pki(&home.data().join("pki"));
        let demo = Self { home, postgres, _kine: kine };
        passes(&demo.guard()).await;
        add_a_key(&demo.postgres).await;
        demo
    }

    fn guard(&self) -> IdentityGuard {
        guard("demo", &self.home.data(), &self.postgres)
    }

    async fn records(&self) -> (Value, Option<Vec<u8>>) {
        let row = self
            .postgres
            .text("kine", "SELECT coalesce(max(record::text), 'null') FROM berth.identity")
            .await;
        (serde_json::from_str(&row).unwrap(), fs::read(self.home.data().join("identity.json")).ok())
    }

    /// Refused as `kind`, it is adopted, and both records are of one mind and a higher epoch.
    async fn adopts(&self, kind: &str, take_over: Option<&str>) {
        let guard = self.guard();
        let error = refusal(&guard).await;
        assert!(error.contains(kind) && error.contains("berth cluster adopt demo"), "{kind}: {error}");
        let before = self.records().await;
        let plan = guard.plan_adoption(&[]).await.unwrap();
        assert_eq!(self.records().await, before, "{kind}: to plan changes nothing");
        assert!(plan.differs[0].contains(kind), "{plan:?}");
        assert_eq!(plan.take_over.as_deref(), take_over, "{kind}");

        guard.adopt(&consent(&plan), &[]).await.unwrap();
        passes(&guard).await;
        let (row, file) = (row(&self.postgres).await, file(&self.home.data()));
        assert_eq!(
            (&row, &row["phase"], &row["owner"]["uid"]),
            (&file, &"settled".into(), &"uid-of-demo".into())
        );
        let epoch = |record: &Value| record["epoch"].as_u64().unwrap_or(1);
        let old_file = before.1.map_or(Value::Null, |bytes| serde_json::from_slice(&bytes).unwrap());
        assert_eq!(epoch(&row), epoch(&before.0).max(epoch(&old_file)) + 1, "{kind}");
    }

    async fn forget_row(&self) {
        self.postgres.sql("kine", "DELETE FROM berth.identity").await;
    }

    fn forget_file(&self) {
        fs::remove_file(self.home.data().join("identity.json")).unwrap();
    }
}

#[tokio::test]
async fn each_refusal_of_ones_own_data_is_adopted_and_no_key_is_touched() {
    let demo = Demo::new().await;
    let data = demo.home.data();
    let keys = "SELECT count(*)::text || max(id)::text FROM kine";
    let kept = demo.postgres.text("kine", keys).await;

    let moved = demo.home.path().join("moved");
    copy(&data, &moved);
    fs::remove_dir_all(&data).unwrap();
    fs::rename(&moved, &data).unwrap();
    demo.adopts("CopiedDataDir", None).await;

    real_stack::write_pki(&data.join("pki"));
    demo.adopts("CaMismatch", None).await;

    set_row(&demo.postgres, json!({"machine_id": "another"})).await;
    set_file(&data, |record| record["machine_id"] = "another".into());
    demo.adopts("CopiedDataDir", None).await;

    set_row(&demo.postgres, json!({"system_identifier": "7001"})).await;
    set_file(&data, |record| record["system_identifier"] = "7001".into());
    demo.adopts("ClonedDatabase", None).await;

    set_file(&data, |record| record["epoch"] = 1.into());
    demo.adopts("CopiedDataDir", None).await;
    set_row(&demo.postgres, json!({"epoch": 1})).await;
    demo.adopts("ClonedDatabase", None).await;

    demo.forget_file();
    demo.adopts("DataDirNotOurs", None).await;
    assert_eq!(demo.postgres.text("kine", keys).await, kept);

    demo.forget_row().await;
    demo.postgres.sql("kine", &format!("DELETE FROM kine WHERE name = '{KEY}'")).await;
    demo.adopts("DatastoreEmpty", None).await;
}

#[tokio::test]
async fn a_strangers_or_nobodys_data_are_taken_over_by_name_only() {
    let demo = Demo::new().await;
    let data = demo.home.data();
    let theirs = json!({"cluster": "demo", "uid": "uid-of-an-earlier-demo"});
    set_row(&demo.postgres, json!({"owner": theirs})).await;
    set_file(&data, |record| record["owner"] = theirs.clone());
    let before = demo.records().await;
    let plan = demo.guard().plan_adoption(&[]).await.unwrap();
    for take_over in [None, Some("uid-of-someone".to_owned()), Some(UNCLAIMED.to_owned())] {
        let consent = Consent { take_over, ..consent(&plan) };
        let error = demo.guard().adopt(&consent, &[]).await.unwrap_err();
        assert!(error.to_string().contains("--take-over uid-of-an-earlier-demo"), "{error}");
    }
    let neighbour = Owner { cluster: "next".to_owned(), uid: "uid-of-an-earlier-demo".to_owned() };
    let error = demo.guard().adopt(&consent(&plan), &[neighbour]).await.unwrap_err();
    assert!(error.to_string().contains("cluster next"), "{error}");
    assert_eq!(demo.records().await, before);
    demo.adopts("IdentityMismatch", Some("uid-of-an-earlier-demo")).await;

    demo.forget_row().await;
    demo.adopts("IdentityRowMissing", Some(UNCLAIMED)).await;
    demo.forget_row().await;
    demo.forget_file();
    demo.adopts("UnclaimedDatastore", Some(UNCLAIMED)).await;
}

async fn fails(demo: &Demo, part: &str) {
    let before = fs::read(demo.home.data().join("identity.json")).unwrap();
    match demo.guard().plan_adoption(&[]).await {
        Err(AdoptionError::Failed(reason)) => assert!(reason.contains(part), "{reason}"),
        other => panic!("expected a failure, got {other:?}"),
    }
    assert_eq!(fs::read(demo.home.data().join("identity.json")).unwrap(), before);
}

async fn is_never_adopted(guard: &IdentityGuard, part: &str) {
    match guard.plan_adoption(&[]).await {
        Err(AdoptionError::Refused(reason)) => assert!(reason.contains(part), "{reason}"),
        other => panic!("expected a no, got {other:?}"),
    }
}

#[tokio::test]
async fn what_is_not_known_or_held_or_fine_is_never_adopted() {
    let mut demo = Demo::new().await;
    is_never_adopted(&demo.guard(), "nothing against").await;

    let holder = demo.guard();
    passes(&holder).await;
    is_never_adopted(&demo.guard(), "DatabaseInUse").await;
    drop(holder);

    let row = row(&demo.postgres).await;
    demo.postgres.sql("kine", "UPDATE berth.identity SET record = '{\"owner\": 7}'").await;
    fails(&demo, "berth.identity").await;
    demo.postgres.sql("kine", &format!("UPDATE berth.identity SET record = '{row}'")).await;

    let file = fs::read(demo.home.data().join("identity.json")).unwrap();
    berth::files::write_atomic(&demo.home.data().join("identity.json"), b"{", user()).unwrap();
    fails(&demo, "identity.json").await;
    berth::files::write_atomic(&demo.home.data().join("identity.json"), &file, user()).unwrap();

    set_row(&demo.postgres, json!({"owner": {"cluster": "other", "uid": "uid-of-other"}})).await;
    is_never_adopted(&demo.guard(), "never put together").await;

    demo.postgres.stop().await;
    fails(&demo, "reached").await;
}

#[tokio::test]
async fn an_agreement_is_worth_nothing_once_the_evidence_has_changed() {
    let demo = Demo::new().await;
    demo.forget_file();
    let plan = demo.guard().plan_adoption(&[]).await.unwrap();
    set_row(&demo.postgres, json!({"epoch": 7})).await;
    let before = demo.records().await;
    let error = demo.guard().adopt(&consent(&plan), &[]).await.unwrap_err();
    assert!(matches!(&error, AdoptionError::Refused(reason) if reason.contains("look again")), "{error:?}");
    assert_eq!(demo.records().await, before);
    demo.adopts("DataDirNotOurs", None).await;
}

/// Whichever of its three writes an adoption did not come to, the next check does; and a copy is refused all along.
#[tokio::test]
async fn an_adoption_cut_short_after_any_write_is_finished_by_the_next_check() {
    let demo = Demo::new().await;
    let data = demo.home.data();
    let copied = demo.home.path().join("copied");
    copy(&data, &copied);
    fs::rename(&data, demo.home.path().join("original")).unwrap();
    fs::rename(&copied, &data).unwrap();
    let old_file = fs::read(data.join("identity.json")).unwrap();
    let old: berth::guard::Record = serde_json::from_slice(&old_file).unwrap();
    demo.adopts("CopiedDataDir", None).await;
    let adopted = json!({"phase": "adopted", "replaces": old.fingerprint()});

    for file_follows in [false, true] {
        set_row(&demo.postgres, adopted.clone()).await;
        if file_follows {
            set_file(&data, |record| record["phase"] = "created".into());
        } else {
            berth::files::write_atomic(&data.join("identity.json"), &old_file, user()).unwrap();
        }
        let original = guard("demo", &demo.home.path().join("original"), &demo.postgres);
        assert!(
            refusal(&original).await.contains("CopiedDataDir"),
            "the copy that lost is not trusted either"
        );
        passes(&demo.guard()).await;
        let (row, file) = (row(&demo.postgres).await, file(&data));
        assert_eq!((&row, &row["phase"], &row["epoch"]), (&file, &"settled".into(), &2.into()));
        assert!(row.get("replaces").is_none(), "{row}");
    }
}
