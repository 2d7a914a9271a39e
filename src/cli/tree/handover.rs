//! A handover in the tree: how far it came, how long each phase took, and what the drain did.

use super::{Branch, Columns};
use crate::cli::terminal::{Style, Tone, harmless};
use crate::cli::units;
use berth_actors::host::DrainReport;
use berth_actors::status::{HandoverOutcome, HandoverStatus};

pub(super) fn branch(handover: &HandoverStatus, columns: &Columns, style: Style) -> Branch {
    let outcome = match &handover.outcome {
        HandoverOutcome::Running => style.paint(Tone::Busy, "running"),
        HandoverOutcome::Done => style.paint(Tone::Good, "done"),
        HandoverOutcome::RolledBack(reason) => {
            style.paint(Tone::Bad, &format!("rolled back: {}", harmless(reason)))
        }
    };
    let line =
        format!("{}slot {} to {}, {outcome}", columns.head("handover", style), handover.from, handover.to);
    let mut remarks = Vec::new();
    if !handover.phases.is_empty() {
        let phases = handover.phases.iter();
        let phases: Vec<_> = phases.map(|p| format!("{} {}", p.phase, units::took(p.took_ms))).collect();
        remarks.push(phases.join(", "));
    }
    if let Some(drain) = &handover.drain {
        remarks.push(format!("drain: {}", drained(drain)));
    }
    Branch { line, remarks, below: Vec::new() }
}

/// What a drain did, in words.
pub(super) fn drained(drain: &DrainReport) -> String {
    let DrainReport { held, idle, self_closed, forced, raced, took_ms } = drain;
    let took = units::took(*took_ms);
    format!("{held} held, {idle} idle, {self_closed} self-closed, {forced} forced, {raced} raced in {took}")
}
