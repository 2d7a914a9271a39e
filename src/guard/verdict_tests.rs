//! The truth table row by row, and properties over any evidence.

use super::*;
use proptest::prelude::*;
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

fn record(name: &str, phase: Phase) -> Record {
    Record { phase, ..claim(&owner(name), FIRST_EPOCH, &facts()) }
}

fn evidence(file: Option<Record>, row: Option<Record>, has_keys: bool) -> Evidence {
    Evidence { expected: owner("demo"), file, row, has_keys, facts: facts() }
}

fn refusal(evidence: &Evidence) -> String {
    match verdict(evidence) {
        Verdict::Refuse(refusal) => refusal.to_string(),
        other => panic!("{evidence:?} gave {other:?}"),
    }
}

#[test]
fn a_first_boot_goes_from_claim_to_pass_in_three_steps() {
    let mut now = evidence(None, None, false);
    let Verdict::Claim(row) = verdict(&now) else { panic!() };
    assert_eq!(row.phase, Phase::Claimed);
    now.row = Some(row);
    let Verdict::WriteFile(file) = verdict(&now) else { panic!() };
    assert_eq!(file.phase, Phase::Created);
    now.file = Some(file);
    let Verdict::Settle(settled) = verdict(&now) else { panic!() };
    (now.row, now.file) = (Some(settled.clone()), Some(settled));
    assert_eq!(verdict(&now), Verdict::Pass);
    now.has_keys = true;
    assert_eq!(verdict(&now), Verdict::Pass);
}

#[test]
fn a_crash_between_row_and_file_of_settling_is_settled_again() {
    for (file, row) in [(Phase::Created, Phase::Settled), (Phase::Created, Phase::Claimed)] {
        let half = evidence(Some(record("demo", file)), Some(record("demo", row)), false);
        assert_eq!(verdict(&half), Verdict::Settle(record("demo", Phase::Settled)));
    }
}

/// What a restore as `demo` writes beside the database of `other`.
fn restored(row: &Record) -> Record {
    Record { epoch: row.epoch + 1, replaces: Some(row.fingerprint()), ..record("demo", Phase::Restored) }
}

#[test]
fn a_restored_backup_of_another_cluster_gets_its_new_owner_and_a_higher_epoch() {
    let row = record("other", Phase::Settled);
    let mut now = evidence(Some(restored(&row)), Some(row), true);
    let Verdict::Settle(settled) = verdict(&now) else { panic!() };
    assert_eq!((settled.owner.clone(), settled.epoch), (owner("demo"), FIRST_EPOCH + 1));
    // The daemon dies between the row and the file.
    now.row = Some(settled.clone());
    assert_eq!(verdict(&now), Verdict::Settle(settled.clone()));
    now.file = Some(settled);
    assert_eq!(verdict(&now), Verdict::Pass);
}

#[test]
fn a_restored_file_overrides_no_row_but_the_backups_and_nothing_once_it_was_copied() {
    let row = record("other", Phase::Settled);
    let file = restored(&row);
    let later = Record { epoch: 9, ..row.clone() };
    assert!(refusal(&evidence(Some(file.clone()), Some(later), true)).starts_with("IdentityMismatch"));
    assert!(refusal(&evidence(Some(file.clone()), None, true)).starts_with("IdentityRowMissing"));
    let mut copied = evidence(Some(file.clone()), Some(row.clone()), true);
    copied.facts.data_dir_inode += 1;
    assert!(refusal(&copied).starts_with("IdentityMismatch"));
    let mut anothers = evidence(Some(file), Some(row), true);
    anothers.expected = owner("third");
    assert!(matches!(verdict(&anothers), Verdict::Refuse(_)));
}

#[test]
fn keys_that_nobody_claims_are_refused() {
    assert!(refusal(&evidence(None, None, true)).starts_with("UnclaimedDatastore"));
}

#[test]
fn a_settled_directory_on_an_empty_database_is_refused() {
    let settled = evidence(Some(record("demo", Phase::Settled)), None, false);
    assert!(refusal(&settled).starts_with("DatastoreEmpty"));
}

#[test]
fn a_created_file_claims_again_only_on_the_database_it_was_made_for() {
    let mut half = evidence(Some(record("demo", Phase::Created)), None, false);
    assert_eq!(verdict(&half), Verdict::Claim(record("demo", Phase::Claimed)));
    half.facts.system_identifier = "7002".to_owned();
    assert!(refusal(&half).starts_with("DatastoreEmpty"));
}

#[test]
fn a_database_with_keys_and_no_row_is_refused() {
    for phase in [Phase::Created, Phase::Settled] {
        let lost = evidence(Some(record("demo", phase)), None, true);
        assert!(refusal(&lost).starts_with("IdentityRowMissing"));
    }
}

#[test]
fn a_database_of_another_directory_is_refused() {
    for (row, has_keys) in [
        (record("other", Phase::Settled), true),
        (record("other", Phase::Claimed), false),
        (record("demo", Phase::Settled), false),
        (record("demo", Phase::Claimed), true),
    ] {
        let error = refusal(&evidence(None, Some(row.clone()), has_keys));
        assert!(error.starts_with("DataDirNotOurs") && error.contains(&row.owner.uid), "{error}");
        assert!(error.contains("uid-of-demo"), "{error}");
    }
}

#[test]
fn two_identities_are_refused_and_both_are_named() {
    for (file, row) in [("demo", "other"), ("other", "demo"), ("other", "other")] {
        let both = evidence(Some(record(file, Phase::Settled)), Some(record(row, Phase::Settled)), true);
        let error = refusal(&both);
        assert!(error.starts_with("IdentityMismatch"), "{error}");
        assert!(error.contains("uid-of-demo") && error.contains("uid-of-other"), "{error}");
    }
}

#[test]
fn each_fact_that_changed_is_refused_by_its_own_name() {
    type Change = fn(&mut Evidence);
    let table: [(&str, Change); 9] = [
        ("ClonedDatabase", |e| e.facts.system_identifier = "7002".into()),
        ("CaMismatch", |e| {
            e.facts.authorities.insert("client-ca".into(), "bb".into());
        }),
        ("CaMismatch", |e| e.facts.authorities.clear()),
        ("CopiedDataDir", |e| e.facts.data_dir = "/copy".into()),
        ("CopiedDataDir", |e| e.facts.data_dir_inode = 43),
        ("CopiedDataDir", |e| e.facts.machine_id = Some("m2".into())),
        ("CopiedDataDir", |e| e.row.as_mut().unwrap().epoch = 2),
        ("ClonedDatabase", |e| e.file.as_mut().unwrap().epoch = 2),
        ("ClonedDatabase", |e| e.file.as_mut().unwrap().system_identifier = "7002".into()),
    ];
    for (name, change) in table {
        let mut changed =
            evidence(Some(record("demo", Phase::Settled)), Some(record("demo", Phase::Settled)), true);
        change(&mut changed);
        let error = refusal(&changed);
        assert!(error.starts_with(name), "{name}: {error}");
    }
}

#[test]
fn what_was_not_known_before_is_added_and_what_is_unknown_today_is_kept() {
    let mut grown =
        evidence(Some(record("demo", Phase::Settled)), Some(record("demo", Phase::Settled)), true);
    grown.facts.authorities.insert("server-ca".into(), "cc".into());
    grown.facts.machine_id = None;
    let Verdict::Settle(settled) = verdict(&grown) else { panic!() };
    assert_eq!(settled.authorities, grown.facts.authorities);
    assert_eq!(settled.machine_id.as_deref(), Some("m1"));
    (grown.row, grown.file) = (Some(settled.clone()), Some(settled));
    assert_eq!(verdict(&grown), Verdict::Pass);
}

fn any_facts() -> impl Strategy<Value = Facts> {
    (0..2u8, any::<bool>(), 0..2u8, 0..2u64, proptest::option::of(0..2u8)).prop_map(
        |(system, has_ca, dir, data_dir_inode, machine)| Facts {
            system_identifier: system.to_string(),
            authorities: has_ca.then(|| ("client-ca".to_owned(), "aa".to_owned())).into_iter().collect(),
            data_dir: PathBuf::from(format!("/{dir}")),
            data_dir_inode,
            machine_id: machine.map(|m| m.to_string()),
        },
    )
}

fn any_record() -> impl Strategy<Value = Record> {
    let phase =
        prop_oneof![Just(Phase::Claimed), Just(Phase::Adopted), Just(Phase::Created), Just(Phase::Settled)];
    (any::<bool>(), 1..3u64, phase, any_facts()).prop_map(|(ours, epoch, phase, facts)| {
        let name = if ours { "demo" } else { "other" };
        Record { phase, ..claim(&owner(name), epoch, &facts) }
    })
}

/// Whether an operator agreed to what the row does to the file that is there.
fn is_agreed(evidence: &Evidence) -> bool {
    let replaced = evidence.file.as_ref().map(Record::fingerprint);
    evidence.row.as_ref().is_some_and(|row| row.phase == Phase::Adopted && row.replaces == replaced)
}

fn any_evidence() -> impl Strategy<Value = Evidence> {
    let record = || proptest::option::of(any_record());
    (record(), record(), any::<bool>(), any_facts(), any::<bool>()).prop_map(
        |(file, mut row, has_keys, facts, agreed)| {
            if let Some(row) = row.as_mut().filter(|row| agreed && row.phase == Phase::Adopted) {
                row.replaces = file.as_ref().map(Record::fingerprint);
            }
            Evidence { expected: owner("demo"), file, row, has_keys, facts }
        },
    )
}

/// Carries the step out as the guard does, with no crash in between.
fn carry_out(evidence: &mut Evidence, step: Verdict) {
    match step {
        Verdict::Claim(record) => evidence.row = evidence.row.take().or(Some(record)),
        Verdict::WriteFile(record) => evidence.file = Some(record),
        Verdict::Settle(record) => {
            evidence.row = Some(record.clone());
            evidence.file = Some(record);
        }
        Verdict::Pass | Verdict::Refuse(_) => {}
    }
}

proptest! {
    #[test]
    fn nothing_foreign_is_ever_passed_or_written_over(evidence in any_evidence()) {
        let ours = |record: &Option<Record>| record.as_ref().is_none_or(|r| r.owner == evidence.expected);
        if !matches!(verdict(&evidence), Verdict::Refuse(_)) {
            prop_assert!(ours(&evidence.row));
            // Only where an operator agreed to exactly this does the file count for nothing.
            let agreed = is_agreed(&evidence);
            prop_assert!(agreed || ours(&evidence.file));
            // Else keys are only ever entered with both records in hand.
            prop_assert!(agreed || !evidence.has_keys || (evidence.file.is_some() && evidence.row.is_some()));
            for record in evidence.file.iter().filter(|_| !agreed).chain(&evidence.row) {
                prop_assert!(differs(record, &evidence.facts).is_none());
            }
        }
    }

    #[test]
    fn every_accepted_evidence_settles_within_the_guards_steps(mut evidence in any_evidence()) {
        for _ in 0..3 {
            let step = verdict(&evidence);
            carry_out(&mut evidence, step);
        }
        prop_assert!(matches!(verdict(&evidence), Verdict::Pass | Verdict::Refuse(_)));
    }

    #[test]
    fn a_refusal_stays_a_refusal(mut evidence in any_evidence()) {
        let first = verdict(&evidence);
        if matches!(first, Verdict::Refuse(_)) {
            carry_out(&mut evidence, first.clone());
            prop_assert_eq!(verdict(&evidence), first);
        }
    }
}
