//! What `berth cluster adopt` would do about a refusal, and which refusals it never overrides. Pure.
//!
//! Whoever is named by file and row is a claim. One's own may be renewed. A stranger's may be taken over where it is the only one,
//! where the CAs on disk are that stranger's, and where its uid is said aloud; the data of two are never put together.

use super::evidence::Evidence;
use super::identity::{Owner, Phase, Record};
use super::verdict::{FIRST_EPOCH, Refusal, Verdict, claim, differences, older, verdict};
use berth_actors::data_adoption::{AdoptionPlan, UNCLAIMED};
use sha2::{Digest, Sha256};

/// What was planned, and the row that makes it so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    pub plan: AdoptionPlan,
    pub(super) row: Record,
}

/// Why these data are not adopted, whatever an operator says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAdoptable {
    #[error("the identity guard has nothing against {ours}: berth cluster retry {} is enough", .ours.cluster)]
    NotRefused { ours: Owner },
    #[error(
        "the data directory belongs to {file}, its database to {row}: data of two clusters are never put together; put back what \
         belongs together"
    )]
    Mixed { file: Owner, row: String },
    #[error(
        "these data belong to {neighbour}, which this daemon has as well: put each cluster's directory back in its place"
    )]
    Neighbour { neighbour: Owner },
    #[error(
        "these data belong to {theirs}, the CAs on disk do not ({difference}): restore them from the same backup"
    )]
    OtherAuthorities { theirs: Owner, difference: String },
}

/// Whose the data are by one witness.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Claim {
    Of(Owner),
    /// Keys that no identity claims.
    Nobody,
}

/// `neighbours`: the other clusters of this daemon.
pub fn plan(evidence: &Evidence, neighbours: &[Owner]) -> Result<Planned, NotAdoptable> {
    let Evidence { expected: ours, file, row, has_keys, facts } = evidence;
    let Verdict::Refuse(refusal) = verdict(evidence) else {
        return Err(NotAdoptable::NotRefused { ours: ours.clone() });
    };
    let stranger = stranger(evidence)?;
    if let Some(Claim::Of(theirs)) = &stranger {
        if let Some(neighbour) = neighbours.iter().find(|neighbour| neighbour.uid == theirs.uid) {
            return Err(NotAdoptable::Neighbour { neighbour: neighbour.clone() });
        }
        let recorded = [file, row].into_iter().flatten();
        let of_a_ca = |refusal: &Refusal| matches!(refusal, Refusal::CaMismatch { .. });
        if let Some(other) = recorded.flat_map(|record| differences(record, facts)).find(of_a_ca) {
            return Err(NotAdoptable::OtherAuthorities {
                theirs: theirs.clone(),
                difference: other.to_string(),
            });
        }
    }
    let epochs = [file, row].into_iter().flatten().map(|record| record.epoch);
    let epoch = epochs.fold(FIRST_EPOCH, u64::max).saturating_add(1);
    // A machine id that cannot be read today stays on record.
    let known = [row, file].into_iter().flatten().find_map(|record| record.machine_id.as_ref());
    let record = Record {
        phase: Phase::Adopted,
        machine_id: facts.machine_id.as_ref().or(known).cloned(),
        replaces: file.as_ref().map(Record::fingerprint),
        ..claim(ours, epoch, facts)
    };
    let plan = AdoptionPlan {
        differs: all_differences(evidence, &refusal).iter().map(ToString::to_string).collect(),
        changes: changes(evidence, &record),
        beware: beware(evidence, &refusal, stranger.as_ref()),
        take_over: stranger.map(|stranger| match stranger {
            Claim::Of(theirs) => theirs.uid,
            Claim::Nobody => UNCLAIMED.to_owned(),
        }),
        digest: digest(file.as_ref(), row.as_ref(), *has_keys, &record),
    };
    Ok(Planned { plan, row: record })
}

/// The one claim that is not ours, if there is one. Two that do not agree end it.
fn stranger(evidence: &Evidence) -> Result<Option<Claim>, NotAdoptable> {
    let Evidence { expected: ours, file, row, has_keys, .. } = evidence;
    let of_file = file.as_ref().map(|file| &file.owner);
    let of_database = match row {
        Some(row) => Some(Claim::Of(row.owner.clone())),
        None => has_keys.then_some(Claim::Nobody),
    };
    let mixed = |file: &Owner, row: String| NotAdoptable::Mixed { file: file.clone(), row };
    match (of_file, of_database) {
        (Some(file), Some(Claim::Of(row))) if *file != row => Err(mixed(file, row.to_string())),
        (Some(file), Some(Claim::Nobody)) if file != ours => {
            Err(mixed(file, "nobody that is known".to_owned()))
        }
        (Some(file), None) => Ok((file != ours).then(|| Claim::Of(file.clone()))),
        (_, of_database) => Ok(of_database.filter(|claim| *claim != Claim::Of(ours.clone()))),
    }
}

/// The refusal, and all that would have been refused after it.
fn all_differences(evidence: &Evidence, first: &Refusal) -> Vec<Refusal> {
    let Evidence { file, row, facts, .. } = evidence;
    let mut all = vec![first.clone()];
    let of_records = [row, file].into_iter().flatten().flat_map(|record| differences(record, facts));
    let of_epochs = file.as_ref().zip(row.as_ref()).and_then(|(file, row)| older(file, row));
    for refusal in of_records.chain(of_epochs) {
        if !all.contains(&refusal) {
            all.push(refusal);
        }
    }
    all
}

fn changes(evidence: &Evidence, adopted: &Record) -> Vec<String> {
    let from = |record: &Option<Record>| match record {
        Some(record) => format!("epoch {} of {}", record.epoch, record.owner),
        None => "none".to_owned(),
    };
    let Record { owner, epoch, system_identifier, authorities, data_dir, data_dir_inode, .. } = adopted;
    vec![
        format!(
            "the row berth.identity of the database, now {}: to epoch {epoch} of {owner}, database system {system_identifier}, \
             {} CAs, data directory {} (inode {data_dir_inode})",
            from(&evidence.row),
            authorities.len(),
            data_dir.display()
        ),
        format!("{}/identity.json, now {}: to the same", data_dir.display(), from(&evidence.file)),
        "nothing else: no key of the database, no other file".to_owned(),
    ]
}

fn beware(evidence: &Evidence, refusal: &Refusal, stranger: Option<&Claim>) -> Vec<String> {
    let ours = &evidence.expected;
    let mut lines = vec![format!(
        "no other copy of these data may run, now or later: nothing but {} from this place is to serve them",
        ours.cluster
    )];
    let mut all = all_differences(evidence, refusal);
    if all.iter().any(|refusal| matches!(refusal, Refusal::CaMismatch { .. })) {
        lines.push("kubeconfigs and certificates of the recorded CA stop working".to_owned());
    }
    if all.iter().any(|refusal| matches!(refusal, Refusal::OlderDatabase { .. })) {
        lines.push(
            "what was written after the older database was copied is lost; clients may have seen it"
                .to_owned(),
        );
    }
    if all.drain(..).any(|refusal| matches!(refusal, Refusal::DatastoreEmpty { .. })) {
        lines.push("the database is empty: the cluster starts without a single object it had".to_owned());
    }
    match stranger {
        Some(Claim::Of(theirs)) => lines.push(format!("{theirs} can never be started on these data again")),
        Some(Claim::Nobody) => lines.push(
            "whose keys these are cannot be told: Secrets that another pki/encryption.json sealed stay unreadable".to_owned(),
        ),
        None => {}
    }
    lines
}

/// Everything that the plan depends on: an agreement to one is none to another.
fn digest(file: Option<&Record>, row: Option<&Record>, has_keys: bool, adopted: &Record) -> String {
    let whole = serde_json::to_vec(&(file, row, has_keys, adopted)).unwrap_or_default();
    hex::encode(&Sha256::digest(whole)[..8])
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
