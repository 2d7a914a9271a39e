//! Names and identities: which component is meant, and which process it is right now.
//!
//! A pid alone names nothing: it is reused. A process is (boot id, pid, start time), and every event and signal carries
//! all three, so that a late exit of an old process cannot touch its replacement.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// One process, for as long as this boot lasts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// `/proc/sys/kernel/random/boot_id`: a record of an earlier boot names no living process.
    #[serde(with = "shared_text")]
    pub boot_id: Arc<str>,
    pub pid: u32,
    /// Field 22 of `/proc/<pid>/stat`, in clock ticks since boot.
    pub start_time: u64,
}

/// A text that many hold, written as any other.
mod shared_text {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::sync::Arc;

    pub(super) fn serialize<S: Serializer>(text: &str, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(text)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Arc<str>, D::Error> {
        String::deserialize(deserializer).map(Into::into)
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} (started at tick {})", self.pid, self.start_time)
    }
}

/// A component's place in the tree, shown as `demo/postgres` or `slot-a/kcp`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ComponentId {
    /// The chain it belongs to: `kcp-store`, `slot-a`, `slot-b`, or a tenant's name.
    pub chain: String,
    /// Its step in that chain: `postgres`, `kine`, `kube-apiserver`, ...
    pub component: String,
}

impl ComponentId {
    pub fn new(chain: impl Into<String>, component: impl Into<String>) -> Self {
        Self { chain: chain.into(), component: component.into() }
    }
}

impl fmt::Display for ComponentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.chain, self.component)
    }
}

/// One of the two alternating places a kcp can run in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotName {
    A,
    B,
}

impl SlotName {
    /// The other slot: where the next handover goes.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// The name of its chain in the tree and of its directory.
    pub fn chain(self) -> &'static str {
        match self {
            Self::A => "slot-a",
            Self::B => "slot-b",
        }
    }
}

impl fmt::Display for SlotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "a",
            Self::B => "b",
        })
    }
}
