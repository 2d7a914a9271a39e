//! The hold-back drain of one connection as a pure step: when to hold the server's bytes, when to let them go, and when to
//! end the connection. The relay calls it with what it sees; it touches no socket and no clock.
//!
//! Why it holds: the only moment at which no request can be lost is while the client waits for an answer. So the answer is
//! kept back until the server is surely done with it (its end is enough), and then sent together with the FIN. Bytes of the client go on to the
//! server all the time, and nothing is ever dropped here.

use super::config::DrainConfig;
use super::pace::Lane;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// How a drain ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// Behind an answer: what is held and the FIN go out in one segment.
    Held,
    /// In silence: only a FIN.
    Idle,
    /// At the limit, or shortly before it behind an answer while the client spoke last: something may be owed.
    Forced,
}

/// What to do with the server's bytes until something happens or the moment given has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Send what is held and forward what comes.
    Pass(Instant),
    /// Keep the end of what comes.
    Hold(Instant),
    Cut(Cut),
}

/// The connection as the relay sees it right now.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "independent observations, not a state")]
pub(super) struct View {
    /// Whose byte was the last of both directions, and when it came.
    pub last: Option<(Side, Instant)>,
    /// When the client's last byte came, else the start.
    pub asked_at: Instant,
    /// Bytes of the server since then.
    pub answer: u64,
    /// They are too few in each record to be an answer: the client may be told that it can send on, and wait for just that.
    pub interim: bool,
    /// Bytes of the server that are kept here.
    pub held: usize,
    /// Bytes of the client that the server's socket has not taken yet.
    pub owed: bool,
    /// Both streams stand between two TLS records.
    pub at_boundary: bool,
    /// The client is past its first answer: the server's last byte is no part of a handshake.
    pub warm: bool,
    /// One request at a time for sure.
    pub h1: bool,
    /// A side has closed its direction: the connection is ending by itself.
    pub closing: bool,
}

/// The drain of one connection, from the order to the cut.
#[derive(Debug)]
pub(super) struct HoldBack {
    config: DrainConfig,
    /// A client that spoke last before this is not waited for.
    spoken_since: Option<Instant>,
    half: Instant,
    /// From here on a client that speaks last no longer prevents a cut behind an answer. An h2 client that read a long answer
    /// ends it with a window update, which nothing tells from a request; cut blindly at the end it would lose for sure.
    late: Instant,
    end: Instant,
    /// Until when bytes go through after a hold without a cut.
    paused_until: Option<Instant>,
    held_since: Option<Instant>,
    turn: Option<Instant>,
}

impl HoldBack {
    pub(super) fn new(config: DrainConfig, now: Instant, limit: Duration) -> Self {
        let (half, late, end) = (now + limit / 2, now + limit * 3 / 4, now + limit);
        let spoken_since = now.checked_sub(limit * config.long_silent);
        Self { config, spoken_since, half, late, end, paused_until: None, held_since: None, turn: None }
    }

    /// The moment of the forced cut.
    pub(super) fn end(&self) -> Instant {
        self.end
    }

    /// `turn` reserves a moment for the cut, not after the one given. `silent` looks into both kernel receive queues; true
    /// when neither has a byte or a FIN. It is asked last, so the caller can cut without giving way in between.
    pub(super) fn step(
        &mut self,
        view: &View,
        now: Instant,
        turn: impl FnOnce(Lane, Instant) -> Option<Instant>,
        silent: impl FnOnce() -> bool,
    ) -> Action {
        if now >= self.end {
            return Action::Cut(Cut::Forced);
        }
        if view.closing {
            return self.pass(self.end);
        }
        let untouched = !view.warm || self.config.h2_moves_itself && !view.h1;
        if untouched && now < self.half {
            return self.pass(self.half);
        }
        // Held, it would stop the client in the middle of its request, and the silence that follows would look like the end.
        if view.interim && now < self.late {
            return self.pass(self.late);
        }
        if let Some(until) = self.paused_until.filter(|until| now < *until) {
            return self.pass(until);
        }
        self.paused_until = None;

        let patience = self.patience(view, now);
        if now >= patience {
            let until = self.end.min(now + self.config.pause);
            self.paused_until = Some(until);
            return self.pass(until);
        }
        // Nothing held means nothing the client waits for: it may ask at any moment. Its next request makes the cut safe.
        if view.held == 0 && now < self.half && !self.is_long_silent(view) {
            return self.hold(self.half);
        }
        let client_last = matches!(view.last, Some((Side::Client, _)));
        let wait_for_server = client_last && (view.held == 0 || now < self.late);
        if view.owed || !view.at_boundary || wait_for_server {
            let late = Some(self.late).filter(|late| now < *late && view.held > 0);
            return self.hold(late.map_or(patience, |late| late.min(patience)));
        }
        if let Some(over) = view.last.map(|(_, at)| at + self.quiet(view, now)).filter(|over| now < *over) {
            return self.hold(over.min(patience));
        }
        let lane = if view.held > 0 { Lane::Held } else { Lane::Idle };
        self.turn = self.turn.or_else(|| turn(lane, patience));
        match self.turn {
            None => Action::Hold(patience),
            Some(turn) if now < turn => Action::Hold(turn.min(patience)),
            // What waits in a queue wakes the relay, which reads it and comes back here.
            Some(_) if !silent() => self.hold(patience),
            Some(_) if client_last => Action::Cut(Cut::Forced),
            Some(_) if view.held > 0 => Action::Cut(Cut::Held),
            Some(_) => Action::Cut(Cut::Idle),
        }
    }

    /// Whatever it has open is no request whose answer is under way, but a watch.
    fn is_long_silent(&self, view: &View) -> bool {
        self.spoken_since.is_some_and(|since| view.asked_at < since)
    }

    /// The silence of the server after which it is done with its answers.
    fn quiet(&self, view: &View, now: Instant) -> Duration {
        let one_write = view.h1 && view.answer <= self.config.one_write;
        if one_write || self.is_long_silent(view) {
            self.config.quiet_short
        } else if now < self.late {
            self.config.quiet_long
        } else {
            self.config.quiet_late
        }
    }

    /// The end of the present hold; with nothing held, of the drain.
    fn patience(&mut self, view: &View, now: Instant) -> Instant {
        if view.held == 0 {
            self.held_since = None;
            return self.end;
        }
        let since = *self.held_since.get_or_insert(now);
        self.end.min(since + self.config.hold)
    }

    fn pass(&mut self, until: Instant) -> Action {
        (self.held_since, self.turn) = (None, None);
        Action::Pass(until)
    }

    fn hold(&mut self, until: Instant) -> Action {
        self.turn = None;
        Action::Hold(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const MS: Duration = Duration::from_millis(1);
    const LIMIT: Duration = Duration::from_secs(4);
    const CONFIG: DrainConfig = DrainConfig {
        quiet_short: Duration::from_millis(5),
        quiet_long: Duration::from_millis(200),
        quiet_late: Duration::from_millis(50),
        one_write: 4096,
        interim: 60,
        long_silent: 4,
        hold: Duration::from_millis(300),
        pause: Duration::from_millis(100),
        tail: 1000,
        pace: Duration::from_millis(2),
        h2_moves_itself: false,
    };

    /// A drain whose order came at `began`; the queues are empty and the pace is free unless a test says otherwise.
    struct Bench {
        began: Instant,
        hold_back: HoldBack,
        silent: bool,
        turn_after: Duration,
        lane: Cell<Option<Lane>>,
    }

    impl Bench {
        fn new(config: DrainConfig) -> Self {
            let began = Instant::now();
            let hold_back = HoldBack::new(config, began, LIMIT);
            Self { began, hold_back, silent: true, turn_after: Duration::ZERO, lane: Cell::default() }
        }

        fn at(&mut self, after: Duration, view: View) -> Action {
            let now = self.began + after;
            let turn = |lane, latest| {
                self.lane.set(Some(lane));
                Some(now + self.turn_after).filter(|turn| *turn <= latest)
            };
            self.hold_back.step(&view, now, turn, || self.silent)
        }

        /// An answer of ten bytes that came at `at`, all of it held.
        fn answered(&self, at: Duration) -> View {
            View {
                last: Some((Side::Server, self.began + at)),
                asked_at: self.began,
                answer: 10,
                interim: false,
                held: 10,
                owed: false,
                at_boundary: true,
                warm: true,
                h1: true,
                closing: false,
            }
        }

        fn hold_until(&self, after: Duration) -> Action {
            Action::Hold(self.began + after)
        }

        fn pass_until(&self, after: Duration) -> Action {
            Action::Pass(self.began + after)
        }
    }

    #[test]
    fn an_answer_is_held_until_the_server_is_silent_and_then_sent_with_the_fin() {
        let mut bench = Bench::new(CONFIG);
        let view = bench.answered(MS);
        assert_eq!(bench.at(MS, view), bench.hold_until(6 * MS));
        assert_eq!(bench.at(6 * MS, view), Action::Cut(Cut::Held));
        assert_eq!(bench.lane.get(), Some(Lane::Held));
    }

    #[test]
    fn a_long_answer_and_a_protocol_with_streams_or_unknown_need_the_longer_silence() {
        let answered = Bench::new(CONFIG).answered(MS);
        for view in [View { h1: false, ..answered }, View { answer: 4097, ..answered }] {
            let mut bench = Bench::new(CONFIG);
            let view = View { last: Some((Side::Server, bench.began + MS)), ..view };
            assert_eq!(bench.at(6 * MS, view), bench.hold_until(201 * MS));
            assert_eq!(bench.at(201 * MS, view), Action::Cut(Cut::Held));
        }
    }

    #[test]
    fn shortly_before_the_limit_the_longer_silence_is_less_long() {
        let (mut bench, late) = (Bench::new(CONFIG), LIMIT * 3 / 4);
        let view = View { h1: false, ..bench.answered(late) };
        assert_eq!(bench.at(late, view), bench.hold_until(late + 50 * MS));
        assert_eq!(bench.at(late + 50 * MS, view), Action::Cut(Cut::Held));
    }

    #[test]
    fn a_client_that_was_silent_for_long_is_cut_in_the_next_silence() {
        let mut bench = Bench::new(CONFIG);
        let watch = View { h1: false, asked_at: bench.began - LIMIT * 4 - MS, ..bench.answered(MS) };
        assert_eq!(bench.at(MS, watch), bench.hold_until(6 * MS));
        assert_eq!(bench.at(6 * MS, watch), Action::Cut(Cut::Held));

        let reserve = View { held: 0, last: Some((Side::Server, watch.asked_at)), ..watch };
        assert_eq!(Bench::new(CONFIG).at(MS, reserve), Action::Cut(Cut::Idle));
        let mut bench = Bench::new(CONFIG);
        let spoke_again = View { asked_at: bench.began, ..reserve };
        assert_eq!(bench.at(MS, spoke_again), bench.hold_until(LIMIT / 2));
    }

    #[test]
    fn a_client_that_waits_for_an_answer_is_waited_for_however_long_ago_it_asked() {
        let mut bench = Bench::new(CONFIG);
        let asked = bench.began - LIMIT * 10;
        let waits =
            View { last: Some((Side::Client, asked)), asked_at: asked, held: 0, ..bench.answered(MS) };
        assert_eq!(bench.at(MS, waits), bench.hold_until(LIMIT));
    }

    #[test]
    fn what_is_owed_or_midway_is_never_cut_behind_an_answer() {
        let mut bench = Bench::new(CONFIG);
        let answered = bench.answered(MS);
        let another_request = Some((Side::Client, bench.began + 2 * MS));
        for view in [
            View { last: another_request, ..answered },
            View { owed: true, ..answered },
            View { at_boundary: false, ..answered },
        ] {
            let mut bench = Bench::new(CONFIG);
            assert_eq!(bench.at(10 * MS, view), bench.hold_until(310 * MS));
        }
        bench.silent = false;
        assert_eq!(bench.at(10 * MS, answered), bench.hold_until(310 * MS));
    }

    #[test]
    fn a_hold_that_led_to_nothing_lets_go_for_a_pause_and_tries_again() {
        let mut bench = Bench::new(CONFIG);
        let streaming = |bench: &Bench, at| View { at_boundary: false, ..bench.answered(at) };
        let view = streaming(&bench, MS);
        assert_eq!(bench.at(MS, view), bench.hold_until(301 * MS));
        let view = streaming(&bench, 300 * MS);
        assert_eq!(bench.at(301 * MS, view), bench.pass_until(401 * MS));
        assert_eq!(bench.at(350 * MS, View { held: 0, ..view }), bench.pass_until(401 * MS));
        let view = bench.answered(401 * MS);
        assert_eq!(bench.at(401 * MS, view), bench.hold_until(406 * MS));
        assert_eq!(bench.at(406 * MS, view), Action::Cut(Cut::Held));
    }

    #[test]
    fn a_silent_connection_gets_until_half_of_the_limit_to_ask_and_is_then_cut_in_silence() {
        let mut bench = Bench::new(CONFIG);
        for last in [None, Some((Side::Server, bench.began - MS))] {
            let view = View { last, held: 0, ..bench.answered(MS) };
            assert_eq!(bench.at(MS, view), bench.hold_until(LIMIT / 2));
            assert_eq!(bench.at(LIMIT / 2, view), Action::Cut(Cut::Idle));
            assert_eq!(bench.lane.take(), Some(Lane::Idle));
        }
    }

    #[test]
    fn a_handshake_is_left_alone_until_half_of_the_limit() {
        let mut bench = Bench::new(CONFIG);
        let view = View { warm: false, ..bench.answered(MS) };
        assert_eq!(bench.at(10 * MS, view), bench.pass_until(LIMIT / 2));
        assert_eq!(bench.at(LIMIT / 2, view), Action::Cut(Cut::Held));
    }

    #[test]
    fn h2_is_left_to_goaway_until_half_of_the_limit_where_the_slots_send_it() {
        let mut bench = Bench::new(DrainConfig { h2_moves_itself: true, ..CONFIG });
        let view = bench.answered(MS);
        assert_eq!(bench.at(100 * MS, View { h1: false, ..view }), bench.pass_until(LIMIT / 2));
        assert_eq!(bench.at(100 * MS, view), Action::Cut(Cut::Held));
    }

    #[test]
    fn a_cut_waits_for_its_turn_and_gives_it_up_when_a_byte_comes() {
        let mut bench = Bench::new(CONFIG);
        bench.turn_after = 20 * MS;
        let view = bench.answered(MS);
        assert_eq!(bench.at(6 * MS, view), bench.hold_until(26 * MS));
        bench.turn_after = 40 * MS;
        let more = bench.answered(25 * MS);
        assert_eq!(bench.at(25 * MS, more), bench.hold_until(30 * MS));
        assert_eq!(bench.at(30 * MS, more), bench.hold_until(70 * MS));
        assert_eq!(bench.at(70 * MS, more), Action::Cut(Cut::Held));
    }

    #[test]
    fn without_a_turn_in_time_the_answer_goes_out_unharmed() {
        let mut bench = Bench::new(CONFIG);
        bench.turn_after = LIMIT;
        let view = bench.answered(MS);
        assert_eq!(bench.at(6 * MS, view), bench.hold_until(306 * MS));
        assert_eq!(bench.at(306 * MS, view), bench.pass_until(406 * MS));
    }

    #[test]
    fn a_window_update_behind_a_long_answer_delays_the_cut_only_until_shortly_before_the_limit() {
        let mut bench = Bench::new(CONFIG);
        let (at, late) = (2990 * MS, LIMIT * 3 / 4);
        let updated = Some((Side::Client, bench.began + at));
        let view = View { last: updated, h1: false, ..bench.answered(at) };
        assert_eq!(bench.at(at, view), bench.hold_until(late));
        assert_eq!(bench.at(late, View { held: 0, ..view }), bench.hold_until(LIMIT));
        assert_eq!(bench.at(late, view), bench.hold_until(at + 50 * MS));
        assert_eq!(bench.at(at + 50 * MS, view), Action::Cut(Cut::Forced));
    }

    #[test]
    fn leave_to_send_on_goes_through_at_once_and_is_no_answer_until_shortly_before_the_limit() {
        for h1 in [true, false] {
            let (mut bench, late) = (Bench::new(CONFIG), LIMIT * 3 / 4);
            let view = View { interim: true, h1, ..bench.answered(MS) };
            assert_eq!(bench.at(MS, view), bench.pass_until(late));
            assert_eq!(bench.at(500 * MS, view), bench.pass_until(late));
            assert_eq!(bench.at(late, view), Action::Cut(Cut::Held));
        }
    }

    #[test]
    fn a_connection_that_closes_itself_is_not_held() {
        let mut bench = Bench::new(CONFIG);
        let view = View { closing: true, ..bench.answered(MS) };
        assert_eq!(bench.at(10 * MS, view), bench.pass_until(LIMIT));
    }

    #[test]
    fn at_the_limit_everything_is_cut() {
        let mut bench = Bench::new(CONFIG);
        let view = bench.answered(MS);
        for view in
            [view, View { owed: true, ..view }, View { closing: true, ..view }, View { warm: false, ..view }]
        {
            assert_eq!(bench.at(LIMIT, view), Action::Cut(Cut::Forced));
        }
    }
}
