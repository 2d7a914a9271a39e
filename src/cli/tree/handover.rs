//! A handover in the tree: how far it came, how long each phase took, and what the drain did.

use super::{Branch, Columns};
use crate::cli::handovers;
use crate::cli::terminal::Style;
use berth_actors::status::HandoverStatus;

pub(super) fn branch(handover: &HandoverStatus, columns: &Columns, style: Style) -> Branch {
    let (head, outcome) = (columns.head("handover", style), handovers::outcome(handover, style));
    let line = format!("{head}slot {} to {}, {outcome}", handover.from, handover.to);
    Branch { line, remarks: handovers::details(handover), below: Vec::new() }
}
