//! What an operator has to see to, in the tree; nothing where there is nothing.

use super::{Branch, Columns};
use crate::cli::terminal::{Style, Tone, harmless};
use berth_actors::status::Upkeep;

pub(super) fn branches(upkeep: &Upkeep, columns: &Columns, style: Style) -> Vec<Branch> {
    let head = columns.head("upkeep", style);
    let chosen = upkeep
        .chosen_kcp
        .iter()
        .map(|chosen| format!("kcp {} goes over the configured one: berth kcp upgrade", harmless(chosen)));
    let notices = upkeep.notices.iter().map(|notice| style.paint(Tone::Bad, &harmless(notice)));
    chosen.chain(notices).map(|line| Branch { line: format!("{head}{line}"), ..Branch::default() }).collect()
}
