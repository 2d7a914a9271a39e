//! The canary in the tree: whether the serving slot's watches are alive.

use super::Columns;
use crate::cli::terminal::{Style, Tone, harmless};
use crate::cli::units;
use berth_actors::status::{CanaryState, CanaryStatus};

pub(super) fn line(canary: &CanaryStatus, columns: &Columns, style: Style) -> String {
    let every = units::took(canary.interval_ms);
    let said = match &canary.state {
        CanaryState::Waiting => style.paint(Tone::Faint, &format!("the first write is due within {every}")),
        CanaryState::Seen { took_ms } => {
            style.paint(Tone::Good, &format!("a write was seen after {}", units::took(*took_ms)))
        }
        CanaryState::Missed { times: 1 } => style.paint(Tone::Bad, "a write was not seen"),
        CanaryState::Missed { times } => {
            style.paint(Tone::Bad, &format!("{times} writes in a row were not seen"))
        }
        CanaryState::Unasked(reason) => {
            style.paint(Tone::Busy, &format!("could not be flown: {}", harmless(reason)))
        }
        CanaryState::Home(reason) => style.paint(Tone::Faint, &format!("at home: {}", harmless(reason))),
    };
    let ago = canary.landed_ago_ms.map(|ago| format!(", {} ago", units::age(ago))).unwrap_or_default();
    format!("{}slot {}: {said}{ago}", columns.head("canary", style), canary.slot)
}
