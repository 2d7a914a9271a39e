//! The guard's truth table. Pure: one [`Evidence`] in, one [`Verdict`] out.
//!
//! ```text
//! file  row                 keys    verdict
//! -     -                   none    Claim      first boot
//! -     -                   some    refuse     UnclaimedDatastore
//! yes   -                   none    refuse     DatastoreEmpty     (file `created` on this very database: Claim)
//! yes   -                   some    refuse     IdentityRowMissing
//! -     yes                 any     refuse     DataDirNotOurs     (row `claimed` by us, no keys: WriteFile)
//! yes   yes, another owner  any     refuse     IdentityMismatch
//! yes   yes, same owner     any     facts compared: ClonedDatabase, CaMismatch, CopiedDataDir; else Settle or Pass
//! as it was when the row was adopted  any   WriteFile: an adoption that was cut short is finished
//! restored from a backup of that row  any   Settle: the row gets the owner that the restore named
//! ```
//! The daemon's own record of the tenant is a third witness: a file or row of anyone else never passes.

use super::evidence::{Evidence, Facts};
use super::identity::{Owner, Phase, Record};
use std::cmp::Ordering;
use std::path::PathBuf;

/// What to do next. Everything but `Pass` and `Refuse` is one durable step, after which the evidence is gathered anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The records agree with each other and with the facts.
    Pass,
    /// Insert this row unless there is one.
    Claim(Record),
    /// The row is ours, the crash came before the file: write it.
    WriteFile(Record),
    /// Both are there and ours: write this as the row, then as the file.
    Settle(Record),
    Refuse(Refusal),
}

/// Why a tenant's Kubernetes may not start. Names both sides; holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "UnclaimedDatastore: the database holds keys of a Kubernetes that no identity claims, {ours} would take them over"
    )]
    UnclaimedDatastore { ours: Owner },
    #[error(
        "DatastoreEmpty: the data directory belongs to {file}, its database holds neither an identity nor keys"
    )]
    DatastoreEmpty { file: Owner },
    #[error(
        "IdentityRowMissing: the data directory belongs to {file}, its database holds keys but no identity"
    )]
    IdentityRowMissing { file: Owner },
    #[error(
        "DataDirNotOurs: the database belongs to {row}, the data directory of {ours} holds no identity.json"
    )]
    DataDirNotOurs { row: Owner, ours: Owner },
    #[error("IdentityMismatch: {one_side} belongs to {one}, {other_side} to {other}")]
    IdentityMismatch { one_side: &'static str, one: Owner, other_side: &'static str, other: Owner },
    #[error("ClonedDatabase: {owner} was recorded on database system {recorded}, this is {found}")]
    ClonedDatabase { owner: Owner, recorded: String, found: String },
    #[error(
        "ClonedDatabase: {owner} is at epoch {file} in the data directory, the database is an older copy (epoch {row})"
    )]
    OlderDatabase { owner: Owner, file: u64, row: u64 },
    #[error("CaMismatch: {owner} was recorded with {authority} {recorded}, on disk is {found}")]
    CaMismatch { owner: Owner, authority: String, recorded: String, found: String },
    #[error(
        "CopiedDataDir: {owner} was recorded in {recorded} (inode {recorded_inode}), this is {found} (inode {found_inode})"
    )]
    CopiedDataDir { owner: Owner, recorded: PathBuf, recorded_inode: u64, found: PathBuf, found_inode: u64 },
    #[error("CopiedDataDir: {owner} was recorded on the machine {recorded}, this is {found}")]
    OtherMachine { owner: Owner, recorded: String, found: String },
    #[error(
        "CopiedDataDir: {owner} is at epoch {row} in the database, the data directory is an older copy (epoch {file})"
    )]
    OlderDataDir { owner: Owner, file: u64, row: u64 },
}

pub(super) const FIRST_EPOCH: u64 = 1;

/// The table above.
pub fn verdict(evidence: &Evidence) -> Verdict {
    let Evidence { expected: ours, file, row, has_keys, facts } = evidence;
    if let Some(file) = unfinished_adoption(evidence) {
        return Verdict::WriteFile(file);
    }
    if let Some(settled) = unfinished_restore(evidence) {
        return Verdict::Settle(settled);
    }
    match (file, row) {
        (None, None) if !has_keys => Verdict::Claim(claim(ours, FIRST_EPOCH, facts)),
        (None, None) => Verdict::Refuse(Refusal::UnclaimedDatastore { ours: ours.clone() }),
        (Some(file), None) => without_row(evidence, file),
        (None, Some(row)) if row.phase == Phase::Claimed && !has_keys && row.owner == *ours => {
            match differs(row, facts) {
                Some(refusal) => Verdict::Refuse(refusal),
                None => Verdict::WriteFile(Record { phase: Phase::Created, ..row.clone() }),
            }
        }
        (None, Some(row)) => {
            Verdict::Refuse(Refusal::DataDirNotOurs { row: row.owner.clone(), ours: ours.clone() })
        }
        (Some(file), Some(row)) => both(ours, file, row, facts),
    }
}

/// The file that is to follow an adopted row: nothing has changed since an operator agreed to it.
fn unfinished_adoption(evidence: &Evidence) -> Option<Record> {
    let Evidence { expected: ours, file, row, facts, .. } = evidence;
    let row = row.as_ref().filter(|row| row.phase == Phase::Adopted && row.owner == *ours)?;
    let is_as_agreed =
        file.as_ref().map(Record::fingerprint) == row.replaces && differs(row, facts).is_none();
    is_as_agreed.then(|| Record { phase: Phase::Created, replaces: None, ..row.clone() })
}

/// The row that is to follow a restored file: the database is the one of the backup, and nobody has claimed it since.
fn unfinished_restore(evidence: &Evidence) -> Option<Record> {
    let Evidence { expected: ours, file, row, facts, .. } = evidence;
    let file = file.as_ref().filter(|file| file.phase == Phase::Restored && file.owner == *ours)?;
    let is_the_backups = row.as_ref().map(Record::fingerprint) == file.replaces && row.is_some();
    let settled = Record { phase: Phase::Settled, ..claim(ours, file.epoch, facts) };
    (is_the_backups && differs(file, facts).is_none()).then_some(settled)
}

fn without_row(evidence: &Evidence, file: &Record) -> Verdict {
    let Evidence { expected: ours, has_keys, facts, .. } = evidence;
    if *has_keys {
        return Verdict::Refuse(Refusal::IdentityRowMissing { file: file.owner.clone() });
    }
    // A database that lost its last commit in the crash is the one the file was made for. A new, empty one is a loss.
    if file.phase == Phase::Created && file.owner == *ours && differs(file, facts).is_none() {
        return Verdict::Claim(claim(ours, file.epoch, facts));
    }
    Verdict::Refuse(Refusal::DatastoreEmpty { file: file.owner.clone() })
}

fn both(ours: &Owner, file: &Record, row: &Record, facts: &Facts) -> Verdict {
    let mismatch = |one_side, one: &Owner, other_side, other: &Owner| {
        Verdict::Refuse(Refusal::IdentityMismatch {
            one_side,
            one: one.clone(),
            other_side,
            other: other.clone(),
        })
    };
    if file.owner != row.owner {
        return mismatch("the data directory", &file.owner, "the database", &row.owner);
    }
    if file.owner != *ours {
        return mismatch("the data directory and its database", &file.owner, "the configured tenant", ours);
    }
    if let Some(refusal) = differs(row, facts).or_else(|| differs(file, facts)) {
        return Verdict::Refuse(refusal);
    }
    if let Some(refusal) = older(file, row) {
        return Verdict::Refuse(refusal);
    }
    // A machine id that cannot be read today stays on record.
    let machine_id = facts.machine_id.as_ref().or(row.machine_id.as_ref()).or(file.machine_id.as_ref());
    let settled =
        Record { phase: Phase::Settled, machine_id: machine_id.cloned(), ..claim(ours, row.epoch, facts) };
    if *file == settled && *row == settled { Verdict::Pass } else { Verdict::Settle(settled) }
}

/// Which half is the older copy, if one is.
pub(super) fn older(file: &Record, row: &Record) -> Option<Refusal> {
    let (owner, file, row) = (file.owner.clone(), file.epoch, row.epoch);
    match file.cmp(&row) {
        Ordering::Less => Some(Refusal::OlderDataDir { owner, file, row }),
        Ordering::Greater => Some(Refusal::OlderDatabase { owner, file, row }),
        Ordering::Equal => None,
    }
}

pub(super) fn claim(owner: &Owner, epoch: u64, facts: &Facts) -> Record {
    Record {
        owner: owner.clone(),
        epoch,
        phase: Phase::Claimed,
        system_identifier: facts.system_identifier.clone(),
        authorities: facts.authorities.clone(),
        data_dir: facts.data_dir.clone(),
        data_dir_inode: facts.data_dir_inode,
        machine_id: facts.machine_id.clone(),
        replaces: None,
    }
}

fn differs(record: &Record, facts: &Facts) -> Option<Refusal> {
    differences(record, facts).into_iter().next()
}

/// The facts that contradict `record`. A CA or machine id it does not name yet contradicts nothing.
pub(super) fn differences(record: &Record, facts: &Facts) -> Vec<Refusal> {
    let owner = || record.owner.clone();
    let mut found_other = Vec::new();
    if record.system_identifier != facts.system_identifier {
        found_other.push(Refusal::ClonedDatabase {
            owner: owner(),
            recorded: record.system_identifier.clone(),
            found: facts.system_identifier.clone(),
        });
    }
    for (authority, recorded) in &record.authorities {
        let found = facts.authorities.get(authority);
        if found != Some(recorded) {
            found_other.push(Refusal::CaMismatch {
                owner: owner(),
                authority: authority.clone(),
                recorded: recorded.clone(),
                found: found.cloned().unwrap_or_else(|| "none".to_owned()),
            });
        }
    }
    if record.data_dir != facts.data_dir || record.data_dir_inode != facts.data_dir_inode {
        found_other.push(Refusal::CopiedDataDir {
            owner: owner(),
            recorded: record.data_dir.clone(),
            recorded_inode: record.data_dir_inode,
            found: facts.data_dir.clone(),
            found_inode: facts.data_dir_inode,
        });
    }
    if let (Some(recorded), Some(found)) = (&record.machine_id, &facts.machine_id)
        && recorded != found
    {
        let (recorded, found) = (recorded.clone(), found.clone());
        found_other.push(Refusal::OtherMachine { owner: owner(), recorded, found });
    }
    found_other
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
