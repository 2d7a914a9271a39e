//! A tenant's claim on its data under any bytes, as the file and as the row, and what the verdict makes of both.

use super::evidence::{self, Evidence, Facts};
use super::plan::plan;
use super::verdict::{Verdict, verdict};
use super::{database, identity as claims};
use crate::fuzzing::{assert_one_line, assert_refused_by_name, text};
use berth_actors::data_adoption::AdoptionPlan;
use std::path::Path;

/// The first line is the file, the rest is the row.
pub fn identity(bytes: &[u8]) {
    let path = Path::new("/data/identity.json");
    let middle = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
    let (file, row) = bytes.split_at(middle);
    let file = evidence::parse(file, path);
    let row = database::parse(&text(row));
    if let Err(refusal) = &file {
        assert_refused_by_name(refusal, "identity.json");
    }
    if let Err(refusal) = &row {
        assert_one_line(&refusal.to_string());
    }
    let (file, row) = (file.ok(), row.ok());
    for record in [&file, &row].into_iter().flatten() {
        let written = serde_json::to_vec(record).unwrap_or_default();
        assert_eq!(evidence::parse(&written, path).ok().as_ref(), Some(record));
    }
    let Some(expected) = file.as_ref().or(row.as_ref()).map(|record| record.owner.clone()) else { return };
    judged(&Evidence { expected, file, row, has_keys: true, facts: facts() });
}

fn facts() -> Facts {
    Facts {
        system_identifier: "7001".into(),
        authorities: [("client-ca".to_owned(), "ab".to_owned())].into(),
        data_dir: "/data".into(),
        data_dir_inode: 2,
        machine_id: None,
    }
}

/// A refusal is for an operator to read; what passes is what was settled for this very owner.
fn judged(evidence: &Evidence) {
    match verdict(evidence) {
        Verdict::Refuse(refusal) => assert_one_line(&refusal.to_string()),
        Verdict::Pass => {
            let settled = |record: &Option<claims::Record>| {
                record.as_ref().is_some_and(|record| {
                    record.owner == evidence.expected && record.phase == claims::Phase::Settled
                })
            };
            assert!(settled(&evidence.file) && settled(&evidence.row));
        }
        _ => {}
    }
    if let Ok(planned) = plan(evidence, &[]) {
        let AdoptionPlan { differs, changes, beware, .. } = planned.plan;
        differs.iter().chain(&changes).chain(&beware).for_each(|line| assert_one_line(line));
    }
}
