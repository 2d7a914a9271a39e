//! Which refusals are overridden, at what price, and which never.

use super::super::evidence::Facts;
use super::*;
use std::collections::BTreeMap;

fn owner(name: &str) -> Owner {
    Owner { cluster: name.to_owned(), uid: format!("uid-of-{name}") }
}

fn facts() -> Facts {
    Facts {
        system_identifier: "7001".to_owned(),
        authorities: BTreeMap::from([("client-ca".to_owned(), "aa".to_owned())]),
        data_dir: "/state/clusters/demo".into(),
        data_dir_inode: 42,
        machine_id: Some("m1".to_owned()),
    }
}

fn record(name: &str) -> Record {
    Record { phase: Phase::Settled, ..claim(&owner(name), FIRST_EPOCH, &facts()) }
}

fn evidence(file: Option<&str>, row: Option<&str>, has_keys: bool) -> Evidence {
    Evidence {
        expected: owner("demo"),
        file: file.map(record),
        row: row.map(record),
        has_keys,
        facts: facts(),
    }
}

/// Carries a plan out, with no crash in between, and returns what the guard says to the result.
fn adopted(evidence: &Evidence) -> (Planned, Verdict) {
    let planned = plan(evidence, &[owner("next")]).unwrap();
    let mut now = Evidence { row: Some(planned.row.clone()), ..evidence.clone() };
    let Verdict::WriteFile(file) = verdict(&now) else { panic!("{now:?}") };
    now.file = Some(file);
    let Verdict::Settle(settled) = verdict(&now) else { panic!("{now:?}") };
    (now.file, now.row) = (Some(settled.clone()), Some(settled));
    (planned, verdict(&now))
}

#[test]
fn what_is_its_own_is_adopted_without_another_word_and_its_epoch_is_raised() {
    type Change = fn(&mut Evidence);
    let table: [(&str, Change); 9] = [
        ("ClonedDatabase", |e| e.facts.system_identifier = "7002".into()),
        ("CaMismatch", |e| e.facts.authorities.clear()),
        ("CopiedDataDir", |e| e.facts.data_dir = "/copy".into()),
        ("CopiedDataDir", |e| e.facts.data_dir_inode = 43),
        ("CopiedDataDir", |e| e.facts.machine_id = Some("m2".into())),
        ("CopiedDataDir", |e| e.row.as_mut().unwrap().epoch = 5),
        ("ClonedDatabase", |e| e.file.as_mut().unwrap().epoch = 5),
        ("DataDirNotOurs", |e| e.file = None),
        ("DatastoreEmpty", |e| (e.row, e.has_keys) = (None, false)),
    ];
    for (name, change) in table {
        let mut refused = evidence(Some("demo"), Some("demo"), true);
        change(&mut refused);
        let (planned, after) = adopted(&refused);
        assert!(planned.plan.differs[0].starts_with(name), "{:?}", planned.plan);
        assert_eq!((planned.plan.take_over, after), (None, Verdict::Pass), "{name}");
        let before = refused.file.iter().chain(&refused.row).map(|record| record.epoch).max().unwrap();
        assert_eq!(planned.row.epoch, before + 1, "{name}");
    }
}

#[test]
fn everything_that_differs_is_shown_once() {
    let mut refused = evidence(Some("demo"), Some("demo"), true);
    refused.facts = Facts {
        system_identifier: "7002".into(),
        authorities: BTreeMap::new(),
        data_dir: "/copy".into(),
        ..facts()
    };
    refused.row.as_mut().unwrap().epoch = 3;
    let plan = adopted(&refused).0.plan;
    let names: Vec<_> = plan.differs.iter().map(|line| line.split(':').next().unwrap()).collect();
    assert_eq!(
        names,
        ["ClonedDatabase", "CaMismatch", "CopiedDataDir", "CopiedDataDir"],
        "{:#?}",
        plan.differs
    );
    assert!(
        plan.changes[0].contains("now epoch 3") && plan.changes[0].contains("to epoch 4"),
        "{:#?}",
        plan.changes
    );
    assert!(plan.changes[1].starts_with("/copy/identity.json, now epoch 1"), "{:#?}", plan.changes);
    assert!(plan.beware.iter().any(|line| line.contains("kubeconfigs")), "{:#?}", plan.beware);
}

#[test]
fn a_strangers_data_are_taken_over_only_by_its_name() {
    for (file, row, has_keys) in
        [(Some("other"), Some("other"), true), (None, Some("other"), true), (Some("other"), None, false)]
    {
        let (planned, after) = adopted(&evidence(file, row, has_keys));
        assert_eq!(planned.plan.take_over.as_deref(), Some("uid-of-other"));
        assert!(planned.plan.beware.iter().any(|line| line.contains("uid-of-other")), "{:?}", planned.plan);
        assert_eq!(after, Verdict::Pass);
    }
}

#[test]
fn keys_that_nobody_claims_are_taken_over_only_as_unclaimed() {
    for file in [None, Some("demo")] {
        let (planned, after) = adopted(&evidence(file, None, true));
        assert_eq!((planned.plan.take_over.as_deref(), after), (Some(UNCLAIMED), Verdict::Pass));
    }
}

#[test]
fn data_of_two_clusters_are_never_put_together() {
    for (file, row) in
        [("demo", Some("other")), ("other", Some("demo")), ("other", Some("third")), ("other", None)]
    {
        let refused = plan(&evidence(Some(file), row, true), &[]).unwrap_err();
        assert!(matches!(refused, NotAdoptable::Mixed { .. }), "{file} {row:?}: {refused}");
    }
}

#[test]
fn data_of_a_cluster_of_this_very_daemon_are_never_taken_over() {
    for (file, row) in [(Some("other"), Some("other")), (None, Some("other"))] {
        let refused = plan(&evidence(file, row, true), &[owner("next"), owner("other")]).unwrap_err();
        assert!(refused.to_string().contains("uid-of-other"), "{refused}");
        assert!(matches!(refused, NotAdoptable::Neighbour { .. }), "{refused}");
    }
}

#[test]
fn a_strangers_database_under_other_cas_is_never_taken_over() {
    let mut other = evidence(None, Some("other"), true);
    other.facts.authorities.insert("client-ca".into(), "bb".into());
    let refused = plan(&other, &[]).unwrap_err();
    assert!(
        matches!(&refused, NotAdoptable::OtherAuthorities { theirs, .. } if *theirs == owner("other")),
        "{refused}"
    );
}

#[test]
fn what_is_not_refused_is_not_adopted() {
    for fine in [evidence(Some("demo"), Some("demo"), true), evidence(None, None, false)] {
        assert!(matches!(plan(&fine, &[]), Err(NotAdoptable::NotRefused { .. })));
    }
}

#[test]
fn an_agreement_to_one_plan_is_none_to_another() {
    let mut refused = evidence(Some("demo"), Some("demo"), true);
    refused.facts.data_dir = "/copy".into();
    let digest = |evidence: &Evidence| plan(evidence, &[]).unwrap().plan.digest;
    let first = digest(&refused);
    assert_eq!(digest(&refused), first);
    refused.facts.data_dir = "/other-copy".into();
    assert_ne!(digest(&refused), first);
    refused.facts.data_dir = "/copy".into();
    refused.row.as_mut().unwrap().epoch = 2;
    assert_ne!(digest(&refused), first);
}

#[test]
fn an_adoption_cut_short_is_finished_only_where_nothing_has_changed_since() {
    let mut refused = evidence(Some("demo"), Some("demo"), true);
    refused.facts.data_dir = "/copy".into();
    let row = plan(&refused, &[]).unwrap().row;
    let half = Evidence { row: Some(row), ..refused.clone() };
    assert!(matches!(verdict(&half), Verdict::WriteFile(_)));

    let older_file = Some(Record { authorities: BTreeMap::new(), ..record("demo") });
    let changes: [Evidence; 4] = [
        Evidence { file: older_file, ..half.clone() },
        Evidence { file: None, ..half.clone() },
        Evidence { facts: facts(), ..half.clone() },
        Evidence { expected: owner("other"), ..half.clone() },
    ];
    for changed in changes {
        assert!(matches!(verdict(&changed), Verdict::Refuse(_)), "{changed:?}");
    }
}
