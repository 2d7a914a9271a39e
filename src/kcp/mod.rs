//! Everything Berth knows about a kcp slot: how its kine and its kcp start, when that kcp truly serves, what both slots
//! share, and what a handover asks of the kcp API.
//!
//! ```text
//! steps ──> slot (Blueprint) ──> shared ──> material ──> kubeconfig
//!             └──> ready ──> readyz, start_log ──> election
//! api (KcpApi) ──> session, canary ──> watch        journal (Journal) ──> history
//! ```
//! Adapters only: the supervision tree decides when any of this runs. Nothing here starts, signals or watches a process.

pub mod api;
mod canary;
pub mod defaults;
mod election;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod goaway;
mod history;
pub mod journal;
pub mod kubeconfig;
pub mod material;
mod paths;
mod ready;
mod readyz;
mod session;
pub mod shared;
pub mod slot;
pub mod stand_in;
mod start_log;
pub mod steps;
mod version;
mod watch;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod test_server;

pub use api::KcpClient;
pub use goaway::GoawayChance;
pub use journal::HandoverFile;
pub use slot::Kcp;
pub use steps::slot_steps;

use crate::components::Program;
use crate::layout::Layout;
use berth_actors::spec::User;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// What the two slots have in common. Whatever differs between them is derived from the slot's name.
#[derive(Debug, Clone)]
pub struct KcpConfig {
    pub layout: Layout,
    pub program: Program,
    /// The API server a stand-in for kcp serves through; the real kcp never learns of it.
    pub kube_apiserver: PathBuf,
    /// How a stand-in is told to misbehave: see [`stand_in`].
    pub stand_in_knobs: BTreeMap<String, String>,
    /// Port of the front on 127.0.0.1: what consumers, and the Shard object, know as kcp.
    pub front_port: u16,
    /// See [`defaults::SHUTDOWN_DELAY`].
    pub shutdown_delay: Duration,
    /// See [`defaults::GOAWAY_CHANCE`].
    pub goaway_chance: GoawayChance,
    /// Account of the slots' processes when the daemon is root.
    pub owner: Option<User>,
}
