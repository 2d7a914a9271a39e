//! The line of one component, in columns that are as wide as the widest of the whole tree.

use super::Branch;
use crate::cli::terminal::{Style, Tone, harmless};
use crate::cli::{units, words};
use berth_actors::status::{ChainStatus, ChildState, ChildStatus};

/// A screen has room for the end of a log, not for all that is kept; `berth logs` has the rest.
const TAIL_SHOWN: usize = 5;

/// Names that are always there: the traffic rows of the front, and the handover.
const FIXED_HEAD: usize = "handover".len();
const FIXED_NAME: usize = "slot a".len();

pub(super) struct Columns {
    head: usize,
    name: usize,
    state: usize,
    age: usize,
    pid: usize,
    address: usize,
}

impl Columns {
    pub(super) fn of(chains: &[&ChainStatus]) -> Self {
        let children = || chains.iter().flat_map(|chain| &chain.children);
        let widest = |cell: fn(&ChildStatus) -> String| children().map(|c| cell(c).len()).max().unwrap_or(0);
        Self {
            head: chains.iter().map(|chain| chain.name.len()).max().unwrap_or(0).max(FIXED_HEAD),
            name: widest(|child| child.name.clone()).max(FIXED_NAME),
            state: widest(|child| words::child(child.state).1.to_owned()),
            age: widest(age),
            pid: widest(pid),
            address: widest(address),
        }
    }

    /// A chain's name, strong, and the gap after it.
    pub(super) fn head(&self, name: &str, style: Style) -> String {
        format!("{}  ", padded(name, self.head, |text| style.paint(Tone::Strong, text)))
    }

    /// A component's name and the gap after it.
    pub(super) fn name(&self, name: &str) -> String {
        format!("{name:0$}  ", self.name)
    }
}

/// Padding stays outside of the colours, or they would count as width.
fn padded(text: &str, width: usize, paint: impl Fn(&str) -> String) -> String {
    format!("{}{:2$}", paint(text), "", width.saturating_sub(text.len()))
}

fn age(child: &ChildStatus) -> String {
    match child.state {
        ChildState::Down => String::new(),
        _ => units::age(child.since_ms),
    }
}

fn pid(child: &ChildStatus) -> String {
    child.pid.map_or_else(String::new, |pid| format!("pid {pid}"))
}

fn address(child: &ChildStatus) -> String {
    child.address.map_or_else(String::new, |address| address.to_string())
}

/// `troubled`: the chain needs an operator, so each component that is not ready shows its log's end.
pub(super) fn branch(child: &ChildStatus, troubled: bool, columns: &Columns, style: Style) -> Branch {
    let (tone, word) = words::child(child.state);
    let mut cells = vec![
        format!("{:1$}", child.name, columns.name),
        padded(word, columns.state, |text| style.paint(tone, text)),
        format!("{:1$}", age(child), columns.age),
        format!("{:1$}", pid(child), columns.pid),
        format!("{:1$}", address(child), columns.address),
    ];
    if child.restarts > 0 {
        cells.push(style.paint(Tone::Busy, &format!("restarts {}", child.restarts)));
    }
    if child.stand_in.is_some() {
        cells.push(style.paint(Tone::Busy, "[stand-in]"));
    }
    // A column that nobody uses leaves no gap.
    cells.retain(|cell| !cell.is_empty());
    Branch { line: cells.join("  "), remarks: remarks(child, troubled, style), below: Vec::new() }
}

fn remarks(child: &ChildStatus, troubled: bool, style: Style) -> Vec<String> {
    let settled = matches!(child.state, ChildState::Ready | ChildState::Down | ChildState::Done);
    let mut remarks = Vec::new();
    if let Some(reason) = &child.stand_in {
        remarks.push(style.paint(Tone::Faint, &format!("stand-in: {}", harmless(reason))));
    }
    if let (false, Some(what)) = (settled, &child.waits_for) {
        remarks.push(style.paint(Tone::Busy, &format!("waits for {}", harmless(what))));
    }
    if let Some(failure) = &child.last_failure {
        let tone = if settled { Tone::Faint } else { Tone::Bad };
        remarks.push(style.paint(tone, &format!("last failure: {}", harmless(failure))));
    }
    if child.last_failure.is_some() && !settled && (troubled || child.state != ChildState::Starting) {
        let from = child.log_tail.len().saturating_sub(TAIL_SHOWN);
        remarks.extend(child.log_tail[from..].iter().map(|line| format!("| {}", harmless(line))));
        remarks.extend(
            child.log.as_ref().map(|log| style.paint(Tone::Faint, &format!("log: {}", harmless(log)))),
        );
    }
    remarks
}
