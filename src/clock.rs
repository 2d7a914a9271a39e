//! The one place that reads the wall clock, which jumps: it is set, by an operator or over the network.
//!
//! Certificates and time stamps are made of it. What is decided goes by the monotonic clock, which cannot be set.

use crate::fault;
use time::OffsetDateTime;

/// The present time, as far as this host knows it.
#[allow(clippy::disallowed_methods, reason = "the one place")]
pub fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc().saturating_add(fault::clock_turned_by())
}
