//! The one place that reads the wall clock, which jumps: it is set, by an operator or over the network.
//!
//! Certificates and time stamps are made of it. What is decided goes by the monotonic clock, which cannot be set.

use crate::fault;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The present time, as far as this host knows it.
#[allow(clippy::disallowed_methods, reason = "the one place")]
pub fn now() -> OffsetDateTime {
    OffsetDateTime::now_utc().saturating_add(fault::clock_turned_by())
}

/// The same to the second, for people: RFC 3339.
pub fn stamp() -> String {
    let now = now();
    now.replace_nanosecond(0).unwrap_or(now).format(&Rfc3339).unwrap_or_default()
}
