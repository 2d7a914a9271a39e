//! When a certificate is due for renewal. Pure.

use std::time::Duration;
use time::OffsetDateTime;

/// No timer is set closer than this, so that a clock that jumps cannot make a hot loop.
const SHORTEST_WAIT: Duration = Duration::from_mins(1);

/// What is left to notice that renewing fails: a third of the seven days that a credential is good for.
const RESERVE: Duration = Duration::from_hours(7 * 24 / 3);

/// A certificate's life. It begins long before it was made, so that only its end says when it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validity {
    pub not_before: OffsetDateTime,
    pub not_after: OffsetDateTime,
}

impl Validity {
    pub fn renew_at(&self) -> OffsetDateTime {
        self.not_after - RESERVE
    }

    /// Due when its reserve begins, and also before it is valid at all: the clock was wrong when it was made.
    pub fn is_due(&self, now: OffsetDateTime) -> bool {
        now >= self.renew_at() || now < self.not_before
    }

    /// How long to sleep before asking again.
    pub fn next_check(&self, now: OffsetDateTime) -> Duration {
        let wait = Duration::try_from(self.renew_at() - now).unwrap_or_default();
        wait.max(SHORTEST_WAIT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_week_is_renewed_after_two_thirds_and_not_before() {
        let start = OffsetDateTime::UNIX_EPOCH;
        let life = Validity { not_before: start, not_after: start + time::Duration::days(7) };
        let due = start + time::Duration::hours(112);
        assert_eq!(life.renew_at(), due);
        for (now, is_due) in [
            (start, false),
            (due - time::Duration::SECOND, false),
            (due, true),
            (life.not_after + time::Duration::DAY, true),
            (start - time::Duration::SECOND, true),
        ] {
            assert_eq!(life.is_due(now), is_due, "{now}");
        }
        assert_eq!(life.next_check(start), Duration::from_hours(112));
        assert_eq!(life.next_check(due + time::Duration::DAY), SHORTEST_WAIT);
    }
}
