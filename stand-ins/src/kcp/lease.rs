//! The leader lease as one pure step: what was read, and when, to what is written. No network, no clock of its own.
//!
//! It is client-go's rule: a foreign lease is left alone until it has not changed for its whole duration by this
//! process's own clock; the holder is never asked, and nothing is released at the end.

use rand::Rng;
use std::time::{Duration, Instant};

/// How long a holder is believed after its last renewal.
pub(super) const DURATION: Duration = Duration::from_mins(1);
/// How long a leader tries to renew before it stops leading.
pub(super) const RENEW_DEADLINE: Duration = Duration::from_secs(5);
/// Between two renewals.
pub(super) const RETRY: Duration = Duration::from_secs(2);
/// A candidate waits up to this share longer than [`RETRY`], so that two of them do not march in step.
const JITTER: f64 = 1.2;

/// What the spec of a Lease says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub holder: String,
    /// RFC 3339 with microseconds, as the API writes it.
    pub acquired: String,
    pub renewed: String,
    pub transitions: u64,
    pub duration: Duration,
}

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Move {
    /// No lease: create this one.
    Create(Record),
    /// Take over or renew: replace the one that was read.
    Replace(Record),
    /// Somebody else leads.
    Follow(String),
}

/// What one candidate remembers between two looks.
#[derive(Debug)]
pub(super) struct Candidate {
    identity: String,
    seen: Option<(Record, Instant)>,
}

impl Candidate {
    pub(super) fn new(identity: String) -> Self {
        Self { identity, seen: None }
    }

    pub(super) fn identity(&self) -> &str {
        &self.identity
    }

    /// `wall` is now, as it will stand in the lease.
    pub(super) fn step(&mut self, found: Option<&Record>, now: Instant, wall: &str) -> Move {
        let Some(found) = found else {
            self.seen = None;
            return Move::Create(self.record(wall, wall, 0));
        };
        let since = match &self.seen {
            Some((seen, since)) if seen == found => *since,
            _ => {
                self.seen = Some((found.clone(), now));
                now
            }
        };
        if found.holder == self.identity {
            return Move::Replace(self.record(&found.acquired, wall, found.transitions));
        }
        if !found.holder.is_empty() && now < since + found.duration {
            return Move::Follow(found.holder.clone());
        }
        Move::Replace(self.record(wall, wall, found.transitions + 1))
    }

    fn record(&self, acquired: &str, renewed: &str, transitions: u64) -> Record {
        Record {
            holder: self.identity.clone(),
            acquired: acquired.to_owned(),
            renewed: renewed.to_owned(),
            transitions,
            duration: DURATION,
        }
    }
}

/// How long a candidate waits before it looks again: with [`RETRY`], 2 to 4.4 s.
pub(super) fn candidate_pause(retry: Duration) -> Duration {
    retry.mul_f64(1.0 + JITTER * rand::rng().random::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str, renewed: &str) -> Record {
        Record {
            holder: holder.to_owned(),
            acquired: "then".to_owned(),
            renewed: renewed.to_owned(),
            transitions: 3,
            duration: DURATION,
        }
    }

    #[test]
    fn a_missing_lease_is_created_without_transitions() {
        let mut me = Candidate::new("me".to_owned());
        let Move::Create(record) = me.step(None, Instant::now(), "now") else { panic!() };
        assert_eq!((record.holder.as_str(), record.transitions, record.acquired.as_str()), ("me", 0, "now"));
        assert_eq!(record.duration, DURATION);
    }

    #[test]
    fn renewing_keeps_the_acquire_time_and_the_transitions() {
        let mut me = Candidate::new("me".to_owned());
        let Move::Replace(record) = me.step(Some(&held_by("me", "a")), Instant::now(), "now") else {
            panic!()
        };
        assert_eq!(
            (record.acquired.as_str(), record.renewed.as_str(), record.transitions),
            ("then", "now", 3)
        );
    }

    #[test]
    fn a_foreign_lease_is_taken_only_after_sixty_seconds_without_a_renewal() {
        let mut me = Candidate::new("me".to_owned());
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(me.step(Some(&held_by("you", "a")), start, ""), Move::Follow("you".to_owned()));
        assert_eq!(me.step(Some(&held_by("you", "b")), at(30), ""), Move::Follow("you".to_owned()));
        assert_eq!(me.step(Some(&held_by("you", "b")), at(89), ""), Move::Follow("you".to_owned()));
        let Move::Replace(record) = me.step(Some(&held_by("you", "b")), at(90), "now") else { panic!() };
        assert_eq!((record.holder.as_str(), record.transitions, record.acquired.as_str()), ("me", 4, "now"));
    }

    #[test]
    fn a_leader_whose_lease_was_deleted_and_taken_follows() {
        let mut me = Candidate::new("me".to_owned());
        let now = Instant::now();
        assert!(matches!(me.step(Some(&held_by("me", "a")), now, ""), Move::Replace(_)));
        assert_eq!(me.step(Some(&held_by("you", "b")), now, ""), Move::Follow("you".to_owned()));
    }

    #[test]
    fn a_candidate_waits_two_to_four_and_a_half_seconds() {
        for _ in 0..1000 {
            let pause = candidate_pause(RETRY);
            assert!(pause >= RETRY && pause <= Duration::from_millis(4400), "{pause:?}");
        }
    }
}
