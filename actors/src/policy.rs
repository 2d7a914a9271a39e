//! Restart policy: whether, when and how often a dead child starts again. Pure; time is an argument.
use std::time::Duration;

/// Which exits are followed by a restart. The names are OTP's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restart {
    /// Every exit that was not asked for.
    Permanent,
    /// Every exit except with one of these codes.
    Transient(Vec<i32>),
    /// None.
    Temporary,
}

/// Restart policy of one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestartPolicy {
    pub restart: Restart,
    /// Delay before the second restart in a row; doubles up to `max_delay`. The first after a healthy spell is immediate.
    pub base_delay: Duration,
    pub max_delay: Duration,
    /// A child that was ready this long has recovered: delay and count start over.
    pub healthy_after: Duration,
    /// More restarts than this within `window`: the child gives up.
    pub intensity: u32,
    pub window: Duration,
}
