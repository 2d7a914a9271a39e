//! Restart policy: whether, when and how often a dead child starts again. Pure; time and chance are arguments.
//!
//! The words are OTP's. A child that had recovered starts again at once; one that keeps dying waits longer each time; one
//! that dies more than `intensity` times within `window` gives up and its parent decides.

use crate::host::ExitStatus;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Which exits are followed by a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restart {
    /// Every exit that was not asked for.
    Permanent,
    /// Every exit except with one of these codes.
    Transient(Vec<i32>),
    /// None.
    Temporary,
}

/// How an ending that no restart follows is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// It did what it was there for.
    Done,
    /// It did not, and an operator has to look.
    Failed,
}

impl Restart {
    /// What an exit is where no restart follows it; `None` where one does. A temporary child is done with exit code 0.
    pub fn rest(&self, status: ExitStatus) -> Option<Rest> {
        match (self, status) {
            (Self::Permanent, _) => None,
            (Self::Transient(clean), ExitStatus::Code(code)) if clean.contains(&code) => Some(Rest::Done),
            (Self::Transient(_), _) => None,
            (Self::Temporary, ExitStatus::Code(0)) => Some(Rest::Done),
            (Self::Temporary, _) => Some(Rest::Failed),
        }
    }
}

/// Restart policy of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartPolicy {
    pub restart: Restart,
    /// Delay before the second restart in a row; doubles up to `max_delay`. The first after being ready is immediate.
    pub base_delay: Duration,
    pub max_delay: Duration,
    /// A child that was ready this long has recovered: the delay starts over.
    pub healthy_after: Duration,
    /// More restarts than this within `window`: the child gives up.
    pub intensity: u32,
    pub window: Duration,
}

impl Default for RestartPolicy {
    /// Five restarts in a minute: a component that dies more often is broken, not unlucky. The delays stay far below the
    /// start time of an API server (2.4 s and more), so they cost a tenant nothing it would notice.
    fn default() -> Self {
        Self {
            restart: Restart::Permanent,
            base_delay: Duration::from_millis(200),
            max_delay: Duration::from_secs(10),
            healthy_after: Duration::from_secs(10),
            intensity: 5,
            window: Duration::from_secs(60),
        }
    }
}

/// How a life ended, as far as the policy cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// `None`: the start failed before there was a process.
    pub status: Option<ExitStatus>,
    /// For how long it was ready; `None`: never.
    pub ready_for: Option<Duration>,
    /// False when an earlier step's death explains this one: it then costs nothing of the budget.
    pub charged: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    RestartAfter(Duration),
    /// The policy does not restart it; [`Restart::rest`] has what an exit then is.
    Leave,
    /// `restarts` within the window were too many.
    GiveUp {
        restarts: u32,
    },
}

/// The restarts of one child so far.
#[derive(Debug, Clone, Default)]
pub struct History {
    recent: VecDeque<Instant>,
    /// Restarts since the last healthy spell.
    in_a_row: u32,
}

impl History {
    /// Decides on one ending. `jitter` in 0.0..1.0 spreads the delay over 80 % to 120 %, so that neighbours that died
    /// together do not return together.
    pub fn judge(&mut self, policy: &RestartPolicy, ending: Ending, now: Instant, jitter: f64) -> Verdict {
        let rests = ending.status.is_some_and(|status| policy.restart.rest(status).is_some());
        if rests || policy.restart == Restart::Temporary {
            return Verdict::Leave;
        }
        if !ending.charged {
            return Verdict::RestartAfter(policy.base_delay);
        }
        if ending.ready_for.is_some_and(|ready| ready >= policy.healthy_after) {
            self.in_a_row = 0;
        }
        while self.recent.front().is_some_and(|&at| now.duration_since(at) >= policy.window) {
            self.recent.pop_front();
        }
        if self.recent.len() >= policy.intensity as usize {
            return Verdict::GiveUp { restarts: policy.intensity };
        }
        self.recent.push_back(now);
        let delay = match (self.in_a_row, ending.ready_for) {
            (0, Some(_)) => Duration::ZERO,
            (row, _) => {
                spread(policy.base_delay.saturating_mul(1 << row.min(16)).min(policy.max_delay), jitter)
            }
        };
        self.in_a_row += 1;
        Verdict::RestartAfter(delay)
    }

    /// Forgets everything: an operator asked for another try.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}

fn spread(delay: Duration, jitter: f64) -> Duration {
    delay.mul_f64(0.8 + 0.4 * jitter.clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CRASH: Ending = Ending { status: Some(ExitStatus::Signal(9)), ready_for: None, charged: true };

    #[test]
    fn a_restart_leaves_the_window_when_it_is_exactly_as_old_as_that() {
        let policy = RestartPolicy { intensity: 1, ..RestartPolicy::default() };
        let at = |age| {
            let (mut history, start) = (History::default(), Instant::now());
            history.judge(&policy, CRASH, start, 0.5);
            history.judge(&policy, CRASH, start + age, 0.5)
        };
        assert_eq!(at(policy.window.mul_f64(0.999)), Verdict::GiveUp { restarts: 1 });
        assert!(matches!(at(policy.window), Verdict::RestartAfter(_)));
    }

    fn after_ready(seconds: u64) -> Ending {
        Ending { ready_for: Some(Duration::from_secs(seconds)), ..CRASH }
    }

    #[test]
    fn the_first_restart_after_being_ready_is_immediate_and_the_next_ones_wait_longer() {
        let (policy, start) = (RestartPolicy::default(), Instant::now());
        let mut history = History::default();
        let mut delays = Vec::new();
        for _ in 0..4 {
            delays.push(history.judge(&policy, after_ready(1), start, 0.5));
        }
        let ms = |n| Verdict::RestartAfter(Duration::from_millis(n));
        assert_eq!(delays, [ms(0), ms(400), ms(800), ms(1600)]);
    }

    #[test]
    fn a_healthy_spell_makes_the_next_restart_immediate_again() {
        let (policy, start) = (RestartPolicy::default(), Instant::now());
        let mut history = History::default();
        history.judge(&policy, CRASH, start, 0.5);
        history.judge(&policy, CRASH, start, 0.5);
        assert_eq!(
            history.judge(&policy, after_ready(10), start, 0.5),
            Verdict::RestartAfter(Duration::ZERO)
        );
    }

    #[test]
    fn clean_exit_codes_of_a_transient_child_are_left_alone() {
        let policy = RestartPolicy { restart: Restart::Transient(vec![0]), ..RestartPolicy::default() };
        let mut history = History::default();
        let exit = |code| Ending { status: Some(ExitStatus::Code(code)), ..CRASH };
        assert_eq!(history.judge(&policy, exit(0), Instant::now(), 0.5), Verdict::Leave);
        assert!(matches!(history.judge(&policy, exit(1), Instant::now(), 0.5), Verdict::RestartAfter(_)));
    }

    #[test]
    fn a_temporary_child_is_never_restarted_and_is_done_with_exit_code_0_alone() {
        let policy = RestartPolicy { restart: Restart::Temporary, ..RestartPolicy::default() };
        for status in
            [None, Some(ExitStatus::Code(0)), Some(ExitStatus::Signal(9)), Some(ExitStatus::Unknown)]
        {
            let ending = Ending { status, ..CRASH };
            assert_eq!(History::default().judge(&policy, ending, Instant::now(), 0.5), Verdict::Leave);
        }
        let rest = |status| policy.restart.rest(status);
        assert_eq!(rest(ExitStatus::Code(0)), Some(Rest::Done));
        for failed in [ExitStatus::Code(1), ExitStatus::Signal(15), ExitStatus::Unknown] {
            assert_eq!(rest(failed), Some(Rest::Failed));
        }
    }

    #[test]
    fn an_end_nobody_saw_is_never_taken_for_a_clean_one() {
        let transient = Restart::Transient(vec![0]);
        assert_eq!(transient.rest(ExitStatus::Unknown), None, "it is restarted");
    }

    #[test]
    fn a_neighbours_fault_costs_nothing_of_the_budget() {
        let (policy, now) = (RestartPolicy::default(), Instant::now());
        let mut history = History::default();
        for _ in 0..50 {
            let excused = Ending { charged: false, ..CRASH };
            assert!(matches!(history.judge(&policy, excused, now, 0.5), Verdict::RestartAfter(_)));
        }
    }

    proptest! {
        /// The intensity is a promise: no window ever holds more restarts than it allows.
        #[test]
        fn restarts_in_any_window_never_exceed_the_intensity(gaps in prop::collection::vec(0u64..30_000, 1..80)) {
            let policy = RestartPolicy::default();
            let (mut history, mut now) = (History::default(), Instant::now());
            let mut restarts: Vec<Instant> = Vec::new();
            for gap in gaps {
                now += Duration::from_millis(gap);
                if let Verdict::RestartAfter(delay) = history.judge(&policy, CRASH, now, 0.5) {
                    prop_assert!(delay <= policy.max_delay.mul_f64(1.2));
                    restarts.push(now);
                }
            }
            for (index, &first) in restarts.iter().enumerate() {
                let within = restarts[index..].iter().take_while(|&&at| at.duration_since(first) < policy.window).count();
                prop_assert!(within <= policy.intensity as usize);
            }
        }
    }
}
