//! Spreads the cuts of one drain over time. Connections of the drain share one [`Pace`] and take turns from it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Held and idle cuts queue apart: a thousand idle connections, all due at half of the limit, must not make an answer
/// wait that is being held right now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Held,
    Idle,
}

#[derive(Debug)]
pub(super) struct Pace {
    step: Duration,
    /// The next free turn of each lane; `None`: at once.
    next: Mutex<[Option<Instant>; 2]>,
}

impl Pace {
    /// `connections` must fit into half of the limit, where the idle ones are due; so many that they would not go faster.
    pub(super) fn new(step: Duration, limit: Duration, connections: u64) -> Self {
        let fitting = limit / 4 / u32::try_from(connections.max(1)).unwrap_or(u32::MAX);
        Self { step: step.min(fitting), next: Mutex::default() }
    }

    /// The moment of the caller's cut, its own; `None` if there is none left up to `latest` (then ask again later). A turn
    /// that is not used is lost.
    pub(super) fn turn(&self, lane: Lane, now: Instant, latest: Instant) -> Option<Instant> {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = &mut next[lane as usize];
        let turn = slot.map_or(now, |free| free.max(now));
        (turn <= latest).then(|| {
            *slot = Some(turn + self.step);
            turn
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn turns_are_spread_and_lanes_do_not_wait_for_each_other() {
        let (pace, now) = (Pace::new(2 * MS, Duration::from_secs(4), 3), Instant::now());
        let latest = now + 3 * MS;
        assert_eq!(pace.turn(Lane::Idle, now, latest), Some(now));
        assert_eq!(pace.turn(Lane::Idle, now, latest), Some(now + 2 * MS));
        assert_eq!(pace.turn(Lane::Idle, now, latest), None);
        assert_eq!(pace.turn(Lane::Held, now, latest), Some(now));
        assert_eq!(pace.turn(Lane::Idle, latest, latest + MS), Some(now + 4 * MS));
    }

    #[test]
    fn ten_thousand_connections_fit_into_a_quarter_of_the_limit() {
        let (pace, now) = (Pace::new(2 * MS, Duration::from_secs(4), 10_000), Instant::now());
        let last =
            (0..10_000).filter_map(|_| pace.turn(Lane::Idle, now, now + Duration::from_secs(1))).last();
        assert!(last.is_some_and(|turn| turn > now + Duration::from_millis(900)));
    }
}
