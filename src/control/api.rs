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

/// Answer to `GET /v1/clusters/{name}/credentials`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    pub cluster: String,
    pub credentials: Vec<Credential>,
}

impl Credentials {
    /// Everything fits, nothing has ended, and nothing ends soon.
    pub fn is_well(&self) -> bool {
        self.credentials.iter().all(|credential| credential.problems.is_empty())
    }
}

/// A certificate or key of a cluster. Never its contents.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// Its file, below the cluster's directory.
    pub file: String,
    pub purpose: String,
    /// What follows is of certificates only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// RFC 3339, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_seconds: Option<i64>,
    /// When and by whom it is replaced.
    pub renewal: String,
    /// What is wrong with it; nothing when all is well.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// Body of `POST /v1/clusters/{name}/credentials/rotate`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CredentialOrder {
    pub what: Rotate,
    /// Certificates: also those that have two thirds of their life left.
    pub now: bool,
    /// The ServiceAccount's key: for how many days the old one verifies.
    pub keep_days: Option<u32>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rotate {
    #[default]
    Certificates,
    ServiceAccountKey,
    EncryptionKey,
    SealKey,
}

/// What a rotation did, one line each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotated {
    pub done: Vec<String>,
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
