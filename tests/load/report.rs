//! What a run came to: a table by class, the drains, and which bars do not hold.

use super::board::{Board, Fate};
use super::classes::Asks;
use super::losses;
use berth_actors::host::DrainReport;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A stretch of the run in which everyone asked at full speed. Times in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub from: u64,
    pub to: u64,
    /// The load and a handover, or the load alone.
    pub handover: bool,
}

impl Window {
    pub fn contains(&self, at: u64) -> bool {
        (self.from..=self.to).contains(&at)
    }
}

/// One handover, as the daemon reported it.
#[derive(Debug, Clone)]
pub struct Turn {
    pub drain: DrainReport,
    pub whole_ms: u64,
    /// When it was under way.
    pub window: Window,
}

#[derive(Debug, Default)]
pub struct Run {
    pub windows: Vec<Window>,
    pub turns: Vec<Turn>,
    pub rolled_back: usize,
}

/// Watch and object, where a watch was not told of a write, or of a deletion. One that had to list anew was told of what was
/// there then, and not of what had come and gone.
pub fn untold(board: &Board) -> Vec<(usize, String)> {
    let books = board.books();
    let nothing = BTreeMap::new();
    let mut untold = Vec::new();
    let resumed = |class: usize| board.tally(class).relisted == 0;
    let watches = board.classes.iter().enumerate();
    let watches = watches.filter(|(number, class)| class.asks == Asks::Watch && resumed(*number));
    for (class, _) in watches {
        let told = books.told.get(&class).unwrap_or(&nothing);
        let missing = |names: &std::collections::BTreeSet<String>, what: usize| {
            let missing = |name: &&String| told.get(*name).is_none_or(|told| told[what] == 0);
            names.iter().filter(missing).map(|name| (class, name.clone())).collect::<Vec<_>>()
        };
        untold.extend(missing(&books.written, 0));
        untold.extend(missing(&books.deleted, 1));
    }
    untold
}

/// Events a watch was told more than once.
fn doubled(board: &Board, class: usize) -> u64 {
    let books = board.books();
    let twice = |told: &[u8; 2]| told.iter().map(|times| u64::from(times.saturating_sub(1))).sum::<u64>();
    books.told.get(&class).map_or(0, |told| told.values().map(twice).sum())
}

fn fates(board: &Board, class: usize) -> BTreeMap<Fate, usize> {
    let mut fates = BTreeMap::new();
    for failure in &board.tally(class).failures {
        *fates.entry(failure.fate).or_default() += 1;
    }
    fates
}

/// In each window, microseconds: the longest answer that ended in it, and the longest time without one.
pub fn longest(board: &Board, class: usize, windows: &[Window], handover: bool) -> Vec<(u64, u64)> {
    let mut answers = board.tally(class).answers.clone();
    answers.sort_unstable_by_key(|answer| answer.at);
    let of = |window: &Window| {
        let inside = answers.iter().filter(|answer| window.contains(answer.at));
        let (mut latency, mut gap, mut last) = (0, 0, window.from);
        for answer in inside {
            latency = latency.max(answer.latency);
            gap = gap.max(answer.at - last);
            last = answer.at;
        }
        (latency, gap.max(window.to - last))
    };
    windows.iter().filter(|window| window.handover == handover).map(of).collect()
}

/// Median and largest, in milliseconds.
fn spread(values: impl Iterator<Item = u64>) -> (u64, u64) {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    let middle = values.get(values.len() / 2).copied().unwrap_or_default();
    (middle / 1000, values.last().copied().unwrap_or_default() / 1000)
}

fn sum(turns: &[Turn]) -> DrainReport {
    let mut all = DrainReport::default();
    for Turn { drain, .. } in turns {
        all.held += drain.held;
        all.idle += drain.idle;
        all.self_closed += drain.self_closed;
        all.forced += drain.forced;
        all.raced += drain.raced;
    }
    all
}

impl Run {
    pub fn table(&self, board: &Board) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{:28}{:>9}{:>7}{:>22}{:>7}   {:>15} {:>15}   {:>15} {:>15}",
            "",
            "answered",
            "failed",
            "read/never/executed",
            "conns",
            "answer, alone",
            "handover",
            "gap, alone",
            "handover"
        );
        for (class, of) in board.classes.iter().enumerate() {
            let (answered, failed, connections, resumed, relisted) = {
                let tally = board.tally(class);
                (tally.answers.len(), tally.failures.len(), tally.connections, tally.resumed, tally.relisted)
            };
            let fates = fates(board, class);
            let fate = |fate| fates.get(&fate).copied().unwrap_or_default();
            let fates =
                format!("{}/{}/{}", fate(Fate::Read), fate(Fate::NeverExecuted), fate(Fate::Executed));
            let pair = |of: (u64, u64)| format!("{}, {}", of.0, of.1);
            let (alone, handover) =
                (longest(board, class, &self.windows, false), longest(board, class, &self.windows, true));
            let latency = |of: &[(u64, u64)]| pair(spread(of.iter().map(|of| of.0)));
            let gap = |of: &[(u64, u64)]| pair(spread(of.iter().map(|of| of.1)));
            let _ = write!(
                text,
                "{:28}{answered:>9}{failed:>7}{fates:>22}{connections:>7}   {:>15} {:>15}   {:>15} {:>15}",
                of.name,
                latency(&alone),
                latency(&handover),
                gap(&alone),
                gap(&handover),
            );
            if of.asks == Asks::Watch {
                let _ = write!(
                    text,
                    "   resumed {resumed}, relisted {relisted}, doubled {}",
                    doubled(board, class)
                );
            }
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "answer: the longest of a window; gap: the longest time without one; median and largest of all windows, in ms"
        );
        let books = board.books();
        let (written, deleted, lost) = (books.written.len(), books.deleted.len(), books.lost.len());
        drop(books);
        let _ = writeln!(
            text,
            "{written} acknowledged writes, {lost} lost; {deleted} deleted; {} events not told to a watch",
            untold(board).len()
        );
        if !self.turns.is_empty() {
            let (middle, longest) = spread(self.turns.iter().map(|turn| turn.drain.took_ms * 1000));
            let (whole, whole_longest) = spread(self.turns.iter().map(|turn| turn.whole_ms * 1000));
            let all = sum(&self.turns);
            let _ = writeln!(
                text,
                "{} handovers of {whole} ms (longest {whole_longest}), drains of {middle} ms (longest {longest}): {} held, {} idle, {} \
                 ended themselves, {} forced; {} raced, and clients lost requests on {}",
                self.turns.len(),
                all.held,
                all.idle,
                all.self_closed,
                all.forced,
                all.raced,
                self.turns.iter().map(|turn| losses::connections(board, turn)).sum::<u64>()
            );
        }
        for (why, count) in reasons(board) {
            let _ = writeln!(text, "{count:>6} x {why}");
        }
        text
    }

    /// The bars a run must hold; empty when it does. With `moves`, the slots move busy HTTP/2 clients by GOAWAY.
    pub fn broken(&self, board: &Board, moves: bool) -> Vec<String> {
        let mut broken = Vec::new();
        for (class, of) in board.classes.iter().enumerate() {
            let fates = fates(board, class);
            let failed: usize = fates.values().sum();
            if of.multiplexes() && !moves {
                if fates.contains_key(&Fate::Executed) {
                    broken.push(format!("{}: a request that failed was executed: {fates:?}", of.name));
                }
            } else if failed > 0 {
                broken.push(format!("{}: {failed} requests failed: {fates:?}", of.name));
            }
            if board.tally(class).relisted > 0 {
                broken.push(format!("{}: not resumed, but listed anew", of.name));
            }
            let idle = of.asks == Asks::Delete && board.books().written.is_empty();
            if !idle && board.tally(class).answers.is_empty() {
                broken.push(format!("{}: nothing was ever answered", of.name));
            }
        }
        if !moves {
            broken.extend(losses::unexplained(self, board));
        }
        broken.extend(accounts(board));
        broken
    }
}

/// What must hold whatever dies: every acknowledged write was there, and every watch was told of it once.
pub fn accounts(board: &Board) -> Vec<String> {
    let mut broken = Vec::new();
    for (class, of) in board.classes.iter().enumerate() {
        let twice = doubled(board, class);
        if twice > 0 {
            broken.push(format!("{}: {twice} events told twice", of.name));
        }
    }
    let lost = board.books().lost.clone();
    if !lost.is_empty() {
        broken.push(format!("acknowledged and not there: {lost:?}"));
    }
    let untold = untold(board);
    if !untold.is_empty() {
        let some: Vec<_> =
            untold.iter().take(5).map(|(class, name)| (&board.classes[*class].name, name)).collect();
        broken.push(format!("{} events not told to a watch, such as {some:?}", untold.len()));
    }
    broken
}

/// What went wrong, in the clients' words, by how often. Names and numbers are left out, so that alike falls together.
fn reasons(board: &Board) -> Vec<(String, usize)> {
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for (class, of) in board.classes.iter().enumerate() {
        for failure in &board.tally(class).failures {
            let alike: String =
                failure.why.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).take(160).collect();
            *reasons.entry(format!("{}: {:?}: {alike}", of.name, failure.fate)).or_default() += 1;
        }
    }
    reasons.into_iter().collect()
}
