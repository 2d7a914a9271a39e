//! What a service does when its file does not say. One place, each with its reason.

use berth_actors::policy::{Restart, RestartPolicy};
use std::time::Duration;

/// From the start to being ready. Only a service that says when it is ready can miss it.
pub(super) const START_WITHIN: Duration = Duration::from_secs(60);
/// From the stop signal to SIGKILL: as long as supervisord waits, and most programs need a hundredth of it.
pub(super) const STOP_WITHIN: Duration = Duration::from_secs(10);

/// A service has nobody above it to decide, so it is tried for ever; what keeps dying is tried less and less often. One that
/// ran for a second is no crash loop (runit, s6 and supervisord draw the same line) and comes back at once.
pub(super) fn restart() -> RestartPolicy {
    RestartPolicy {
        restart: Restart::Permanent,
        base_delay: Duration::from_millis(100),
        max_delay: Duration::from_secs(10),
        healthy_after: Duration::from_secs(1),
        intensity: u32::MAX,
        // Nothing is counted, so nothing is kept.
        window: Duration::ZERO,
    }
}
