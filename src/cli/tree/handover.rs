//! A handover in the tree.

use super::{Branch, Columns};
use crate::cli::handovers;
use crate::cli::terminal::Style;
use berth_actors::status::HandoverStatus;

pub(super) fn branch(handover: &HandoverStatus, columns: &Columns, style: Style) -> Branch {
    let (head, outcome) = (columns.head("handover", style), handovers::outcome(handover, style));
    let line = format!("{head}slot {} to {}, {outcome}", handover.from, handover.to);
    Branch { line, remarks: handovers::details(handover), below: Vec::new() }
}
