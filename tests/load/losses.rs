//! Requests that were lost where some may be: many at a time on one HTTP/2 connection. The front counts connections, so the
//! clients' failures are counted by connection too before the two are compared.
//!
//! Of the cuts that may lose one, `raced` is only the part a front can see: it bounds the losses from neither side.

use super::board::Board;
use super::report::{Run, Turn};

/// In one handover, connections that lost at least one request. A class has one connection at a time, and a drain ends it once.
pub fn connections(board: &Board, turn: &Turn) -> u64 {
    let classes = board.classes.iter().enumerate().filter(|(_, class)| class.multiplexes());
    let lost = classes.filter(|(class, _)| {
        let tally = board.tally(*class);
        tally.failures.iter().any(|failure| turn.window.contains(failure.at))
    });
    lost.count() as u64
}

/// Losses that no drain explains.
pub fn unexplained(run: &Run, board: &Board) -> Vec<String> {
    let mut broken = Vec::new();
    for (class, of) in board.classes.iter().enumerate().filter(|(_, class)| class.multiplexes()) {
        let failures = board.tally(class).failures.clone();
        let outside =
            failures.iter().filter(|failure| !run.turns.iter().any(|turn| turn.window.contains(failure.at)));
        let outside: Vec<_> = outside.map(|failure| failure.why.as_str()).collect();
        if let Some(why) = outside.first() {
            broken.push(format!(
                "{}: {} requests failed outside any handover: {why}",
                of.name,
                outside.len()
            ));
        }
    }
    for (number, turn) in run.turns.iter().enumerate() {
        let (lost, drain) = (connections(board, turn), turn.drain);
        let cut = drain.held + drain.idle + drain.forced;
        if lost > cut || drain.raced > cut {
            broken.push(format!("handover {}: requests lost on {lost} connections, of {drain}", number + 1));
        }
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::super::classes::{Class, all};
    use super::super::report::Window;
    use super::*;
    use berth_actors::host::DrainReport;

    fn board() -> Board {
        let names = ["rust h2 20 get loops", "go h2 4 post loops", "rust h1 get loop"];
        Board::new(all(true).into_iter().filter(|class| names.contains(&class.name.as_str())).collect())
    }

    /// The whole life of the board is one handover.
    fn run(drain: DrainReport) -> Run {
        let window = Window { from: 0, to: u64::MAX, handover: true };
        Run { turns: vec![Turn { drain, whole_ms: 0, window }], ..Run::default() }
    }

    #[test]
    fn however_many_requests_a_connection_lost_it_is_one() {
        let (board, held) = (board(), DrainReport { held: 1, raced: 1, ..DrainReport::default() });
        let multiplexed = board.classes.iter().position(Class::multiplexes).unwrap();
        for _ in 0..20 {
            board.failed(multiplexed, "connection closed", None);
        }
        let run = run(held);
        assert_eq!(connections(&board, &run.turns[0]), 1);
        assert_eq!(unexplained(&run, &board), [""; 0]);
    }

    #[test]
    fn a_connection_that_did_not_race_may_have_lost_one_but_none_that_was_not_cut() {
        let board = board();
        for (class, _) in board.classes.iter().enumerate().filter(|(_, class)| class.multiplexes()) {
            board.failed(class, "connection closed", None);
        }
        let two = DrainReport { held: 1, forced: 1, ..DrainReport::default() };
        assert_eq!(unexplained(&run(two), &board), [""; 0]);
        let one = DrainReport { idle: 1, self_closed: 8, ..DrainReport::default() };
        assert_eq!(
            unexplained(&run(one), &board),
            [
                "handover 1: requests lost on 2 connections, of 0 held, 1 idle, 8 self-closed, 0 forced, 0 raced in 0 ms"
            ]
        );
    }

    #[test]
    fn a_request_that_fails_without_a_handover_is_nobodys_race() {
        let board = board();
        let multiplexed = board.classes.iter().position(Class::multiplexes).unwrap();
        board.failed(multiplexed, "503", None);
        let broken = unexplained(&Run::default(), &board);
        assert_eq!(
            broken,
            [format!("{}: 1 requests failed outside any handover: 503", board.classes[multiplexed].name)]
        );
    }
}
