//! The front in the tree: where it listens and leads, how full it is, whom it refused, and each slot's connections.

use super::{Branch, Columns};
use crate::cli::handovers::drained;
use crate::cli::terminal::{Style, Tone};
use crate::cli::units;
use berth_actors::identity::SlotName;
use berth_actors::status::{FrontStatus, Refused, SlotTraffic};
use std::fmt::Write;

/// `drain_is_told`: the handover's lines say what the latest drain did.
pub(super) fn branch(front: &FrontStatus, drain_is_told: bool, columns: &Columns, style: Style) -> Branch {
    let mut line = columns.head("front", style);
    match front.listen {
        Some(listen) => _ = write!(line, "{listen}"),
        None => line.push_str(&style.paint(Tone::Bad, "not listening")),
    }
    match &front.target {
        Some(target) => _ = write!(line, " to slot {} at {}", target.slot, target.address),
        None => line.push_str(&style.paint(Tone::Busy, ", no slot serves: connections wait")),
    }
    if front.parked > 0 {
        line.push_str(&style.paint(Tone::Busy, &format!(", {} parked", front.parked)));
    }
    let limits = front.limits;
    if limits.connections > 0 && front.open >= limits.connections {
        let full = format!(", full with {}: whoever comes now waits", front.open);
        line.push_str(&style.paint(Tone::Bad, &full));
    }
    let remarks = turned_away(front).map(|text| style.paint(Tone::Busy, &text)).into_iter().collect();
    let below = front.per_slot.iter().map(|traffic| slot(traffic, drain_is_told, columns, style));
    Branch { line, remarks, below: below.collect() }
}

/// `refused 7: 5 over max_connections_per_peer, 2 parked too long; 1 left while parked`.
fn turned_away(front: &FrontStatus) -> Option<String> {
    let Refused { peer_cap, total_cap, parked_cap, parked_too_long, descriptors } = front.refused_by;
    let reasons = [
        (peer_cap, "over max_connections_per_peer"),
        (total_cap, "over max_connections"),
        (parked_cap, "over max_parked"),
        (parked_too_long, "parked too long"),
        (descriptors, "for want of open files"),
    ];
    let reasons = reasons.into_iter().filter(|(count, _)| *count > 0);
    let reasons: Vec<_> = reasons.map(|(count, why)| format!("{count} {why}")).collect();
    let refused = (front.refused > 0).then(|| format!("refused {}: {}", front.refused, reasons.join(", ")));
    let left = (front.left > 0).then(|| format!("{} left while parked", front.left));
    let parts: Vec<_> = refused.into_iter().chain(left).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn slot(traffic: &SlotTraffic, drain_is_told: bool, columns: &Columns, style: Style) -> Branch {
    let SlotTraffic { slot, open, accepted, bytes_in, bytes_out, draining, last_drain, .. } = traffic;
    let (bytes_in, bytes_out) = (units::bytes(*bytes_in), units::bytes(*bytes_out));
    let mut line = columns.name(slot_name(*slot));
    let _ = write!(line, "{open} open, {accepted} accepted, {bytes_in} in, {bytes_out} out");
    if *draining > 0 {
        line.push_str(&style.paint(Tone::Busy, &format!(", draining: {draining} to go")));
    }
    let told = |report| match (*draining > 0, drain_is_told) {
        (true, _) => Some(format!("drain so far: {}", drained(report))),
        (false, false) => Some(format!("last drain: {}", drained(report))),
        (false, true) => None,
    };
    let remarks = last_drain.as_ref().and_then(told).into_iter().collect();
    Branch { line, remarks, below: Vec::new() }
}

fn slot_name(slot: SlotName) -> &'static str {
    match slot {
        SlotName::A => "slot a",
        SlotName::B => "slot b",
    }
}
