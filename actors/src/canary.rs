//! What the canary of a serving slot means: a small write at a modest interval, which a watch on the same slot must see. Pure;
//! [`crate::root`] flies it.
//!
//! kine can go on answering while nothing comes out of its watches any more. Every check is green then, reads and writes
//! work, and each controller and client lives on in the past. Only a write that is not seen tells.

use crate::host::NoPulse;
use crate::status::CanaryState;
use std::time::Duration;

/// One silence may be a slow moment; nobody restarts a store's door for that.
pub const MISSES: u32 = 2;

/// When it flies, and how long it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cadence {
    pub interval: Duration,
    /// For the write to be seen.
    pub deadline: Duration,
}

/// Since the process it looks at began to serve.
#[derive(Debug, Default)]
pub struct Canary {
    missed: u32,
    latest: Option<CanaryState>,
}

/// What a flight's end asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// All is well; the next one flies in its turn. The text, where there is one, is news.
    Wait(Option<String>),
    /// It was silent once: the next one flies at once.
    Again(String),
    /// The watches have stalled: kine is to be restarted.
    Stalled(String),
}

impl Canary {
    pub fn landed(&mut self, result: Result<Duration, NoPulse>, cadence: Cadence) -> Verdict {
        let silent_before = std::mem::take(&mut self.missed);
        let before = self.latest.take();
        match result {
            Ok(took) => {
                self.latest = Some(CanaryState::Seen { took_ms: millis(took) });
                // The first one of a life is news as well.
                let as_ever = silent_before == 0 && matches!(before, Some(CanaryState::Seen { .. }));
                Verdict::Wait((!as_ever).then(|| format!("seen {} ms after its write", millis(took))))
            }
            // An API that cannot be asked, or a store that does not answer, says nothing about the watches.
            Err(NoPulse::Unasked(reason)) => {
                let is_news = !matches!(before, Some(CanaryState::Unasked(_)));
                self.latest = Some(CanaryState::Unasked(reason.clone()));
                Verdict::Wait(is_news.then(|| format!("could not fly: {reason}")))
            }
            Err(NoPulse::Silent) => {
                self.missed = silent_before + 1;
                self.latest = Some(CanaryState::Missed { times: self.missed });
                let within = cadence.deadline.as_secs_f64();
                if self.missed < MISSES {
                    return Verdict::Again(format!("a write was not seen by a watch within {within} s"));
                }
                self.missed = 0;
                Verdict::Stalled(format!(
                    "{MISSES} writes in a row were not seen by a watch within {within} s"
                ))
            }
        }
    }

    pub fn latest(&self) -> Option<&CanaryState> {
        self.latest.as_ref()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CADENCE: Cadence = Cadence { interval: Duration::from_secs(60), deadline: Duration::from_secs(10) };

    fn verdicts(results: Vec<Result<Duration, NoPulse>>) -> Vec<&'static str> {
        let mut canary = Canary::default();
        let name = |result| match canary.landed(result, CADENCE) {
            Verdict::Wait(None) => "wait",
            Verdict::Wait(Some(_)) => "told",
            Verdict::Again(_) => "again",
            Verdict::Stalled(_) => "stalled",
        };
        results.into_iter().map(name).collect()
    }

    const SEEN: Result<Duration, NoPulse> = Ok(Duration::from_millis(4));
    const SILENT: Result<Duration, NoPulse> = Err(NoPulse::Silent);

    fn unasked() -> Result<Duration, NoPulse> {
        Err(NoPulse::Unasked("HTTP 500".to_owned()))
    }

    #[test]
    fn two_silent_flights_in_a_row_are_a_stall_and_one_is_not() {
        assert_eq!(
            verdicts(vec![SEEN, SILENT, SEEN, SILENT, SILENT]),
            ["told", "again", "told", "again", "stalled"]
        );
    }

    #[test]
    fn an_outage_of_the_store_is_not_a_stall_however_long_it_lasts() {
        assert_eq!(
            verdicts(vec![SILENT, unasked(), SILENT, unasked(), unasked(), SEEN]),
            ["again", "told", "again", "told", "wait", "told"]
        );
    }

    #[test]
    fn after_a_stall_it_counts_anew() {
        assert_eq!(verdicts(vec![SILENT, SILENT, SILENT, SILENT]), ["again", "stalled", "again", "stalled"]);
    }
}
