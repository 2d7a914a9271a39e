//! Bars of time, judged from the same windows as the table. They need a machine with nothing else to do: the example tells which
//! were missed, the test does not ask.

use super::board::Board;
use super::classes::Protocol;
use super::report::{Run, longest};

/// What a drain may add to any answer, in microseconds.
const ADDED: u64 = 500_000;
/// What a handover may add to the longest time without a new connection's answer.
const GAP: u64 = 50_000;
/// A drain of everything, and of HTTP/1.1 alone, in milliseconds.
const DRAIN: u64 = 4000;
const DRAIN_H1: u64 = 500;

/// One line for each bar that was missed.
pub fn missed(run: &Run, board: &Board) -> Vec<String> {
    let mut missed = Vec::new();
    for (number, class) in board.classes.iter().enumerate().filter(|(_, class)| !class.is_slow()) {
        let worst = |handover| {
            let of_all = longest(board, number, &run.windows, handover);
            let latency = of_all.iter().map(|of| of.0).max().unwrap_or_default();
            (latency, of_all.iter().map(|of| of.1).max().unwrap_or_default())
        };
        let (alone, handover) = (worst(false), worst(true));
        if handover.0 > alone.0 + ADDED {
            missed.push(format!(
                "{}: an answer took {} ms in a handover, {} ms without one",
                class.name,
                handover.0 / 1000,
                alone.0 / 1000
            ));
        }
        if class.fresh && handover.1 > alone.1 + GAP {
            missed.push(format!(
                "{}: nothing was answered for {} ms in a handover, for {} ms without one",
                class.name,
                handover.1 / 1000,
                alone.1 / 1000
            ));
        }
    }
    let only_h1 = board.classes.iter().all(|class| class.protocol == Protocol::H1);
    let bar = if only_h1 { DRAIN_H1 } else { DRAIN };
    let late = run.turns.iter().filter(|turn| turn.drain.took_ms >= bar).count();
    if late > 0 {
        missed.push(format!("{late} of {} drains took {bar} ms or more", run.turns.len()));
    }
    if run.rolled_back > 0 {
        missed.push(format!("{} handovers were rolled back", run.rolled_back));
    }
    missed
}

#[cfg(test)]
mod tests {
    use super::super::classes::{Class, all};
    use super::super::report::{Turn, Window};
    use super::*;
    use berth_actors::host::DrainReport;

    fn classes(wanted: &[&str]) -> Vec<Class> {
        all(true).into_iter().filter(|class| wanted.contains(&class.name.as_str())).collect()
    }

    fn run(took_ms: u64) -> Run {
        let window = |from: u64, handover| Window { from, to: from + 1_000_000, handover };
        let drain = DrainReport { took_ms, ..DrainReport::default() };
        Run {
            windows: vec![window(0, false), window(1_000_000, true)],
            turns: vec![Turn { drain, whole_ms: 0, window: window(1_000_000, true) }],
            rolled_back: 0,
        }
    }

    /// An answer in each tenth of a second, of 1 ms; `late` is the time of the last one of the handover.
    fn board(names: &[&str], late: u64) -> Board {
        let board = Board::new(classes(names));
        for class in 0..board.classes.len() {
            for at in (0..20).map(|tenth| tenth * 100_000) {
                board.answered(class, at, 1000);
            }
            board.answered(class, 1_999_999, late);
        }
        board
    }

    #[test]
    fn what_a_drain_adds_counts_and_what_is_slow_by_itself_does_not() {
        let names = ["rust h2 get loop", "rust h2 slow reader"];
        assert_eq!(missed(&run(100), &board(&names, 501_000)), [""; 0]);
        assert_eq!(
            missed(&run(100), &board(&names, 501_001)),
            ["rust h2 get loop: an answer took 501 ms in a handover, 1 ms without one"]
        );
    }

    #[test]
    fn a_gap_of_new_connections_counts_beyond_the_loads_own() {
        let board = Board::new(classes(&["go new connection each 20 ms"]));
        for at in (0..20).filter(|tenth| *tenth != 15).map(|tenth| tenth * 100_000) {
            board.answered(0, at, 1000);
        }
        assert_eq!(
            missed(&run(100), &board),
            [
                "go new connection each 20 ms: nothing was answered for 200 ms in a handover, for 100 ms without one"
            ]
        );
    }

    #[test]
    fn a_drain_of_http_1_alone_has_less_time() {
        let (h1, h2) = (board(&["rust h1 get loop"], 1000), board(&["rust h2 get loop"], 1000));
        assert_eq!(missed(&run(500), &h1), ["1 of 1 drains took 500 ms or more"]);
        assert_eq!(missed(&run(3999), &h2), [""; 0]);
        assert_eq!(missed(&run(4000), &h2), ["1 of 1 drains took 4000 ms or more"]);
    }
}
