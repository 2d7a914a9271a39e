//! What goes over the wire besides the tree's own types; server and client share it, so neither can drift.

use berth_actors::handover::Wish;
use berth_actors::message::TreeEvent;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Body of `POST /v1/clusters`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewCluster {
    pub name: String,
}

/// Body of `POST /v1/kcp/handover` and `POST /v1/kcp/handover/plan`. None at all is a plain handover.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewHandover {
    #[serde(default)]
    pub wish: Wish,
}

/// Body of `POST /v1/kcp/upgrade`: one of the first two.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NewKcp {
    /// Of the asset store.
    pub version: Option<String>,
    /// Absolute.
    pub path: Option<PathBuf>,
    /// It may be older than the newest that ever bootstrapped the store.
    pub allow_downgrade: bool,
}

/// Body of `POST /v1/kcp/rotate-certs`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rotation {
    /// Also when no client can know of the new authority yet.
    pub now: bool,
}

/// Answer to `GET /v1/daemon`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    pub version: String,
    pub pid: u32,
    /// Another one after each start, also where the pid stays the same.
    pub instance: String,
}

/// Body of `POST /v1/daemon/upgrade`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewBinary {
    /// Absolute: the daemon has another working directory.
    pub program: PathBuf,
}

/// What `POST /v1/clusters/{name}/{action}` can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Start,
    Stop,
    Restart,
    Retry,
    Pause,
    Resume,
}

impl Action {
    const ALL: [Self; 6] = [Self::Start, Self::Stop, Self::Restart, Self::Retry, Self::Pause, Self::Resume];

    /// The action of a path segment.
    pub fn parse(segment: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.as_str() == segment)
    }

    /// Its path segment, which is also the verb of the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
            Self::Retry => "retry",
            Self::Pause => "pause",
            Self::Resume => "resume",
        }
    }
}

/// A screenful with some context: what a log request shows when it does not say.
pub const DEFAULT_LOG_LINES: usize = 100;

/// Query of `GET /v1/logs/{chain}/{component}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogQuery {
    /// How many of the latest lines to begin with.
    pub lines: usize,
    /// Stay and send what is written from now on, across rotations.
    pub follow: bool,
}

impl Default for LogQuery {
    fn default() -> Self {
        Self { lines: DEFAULT_LOG_LINES, follow: false }
    }
}

/// Query of `GET /v1/events`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EventQuery {
    /// Stay and send what happens from now on.
    pub follow: bool,
}

/// One line of `GET /v1/events`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StampedEvent {
    /// RFC 3339, UTC.
    pub at: String,
    #[serde(flatten)]
    pub event: TreeEvent,
}
