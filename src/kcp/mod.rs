//! Everything Berth knows about a kcp slot: how its kine and its kcp start, when that kcp truly serves, what both slots
//! share, and what a handover asks of the kcp API.
//!
//! ```text
//! steps ──> slot (Blueprint) ──> shared ──> material ──> kubeconfig
//!             └──> ready ──> readyz, start_log ──> election
//! api (KcpApi) ──> session, canary, pulse ──> watch        journal (Journal) ──> history
//! ```
//! Adapters only: the supervision tree decides when any of this runs. Nothing here starts, signals or watches a process.

pub mod api;
mod authority;
mod canary;
pub mod defaults;
mod election;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod goaway;
mod history;
pub mod journal;
pub mod kubeconfig;
mod lifetimes;
pub mod material;
mod paths;
mod pulse;
mod ready;
mod readyz;
mod release;
pub mod releases;
mod renewal;
mod session;
pub mod shared;
pub mod slot;
pub mod stand_in;
mod start_log;
pub mod steps;
mod trust;
pub mod upgrade;
pub mod upkeep;
mod version;
mod watch;

#[cfg(test)]
mod fixture;
#[cfg(test)]
mod test_server;

pub use api::KcpClient;
pub use goaway::GoawayChance;
pub use journal::HandoverFile;
pub use releases::Releases;
pub use slot::Kcp;
pub use steps::slot_steps;

use crate::components::Program;
use crate::kcp::renewal::Places;
use crate::layout::Layout;
use berth_actors::identity::SlotName;
use berth_actors::spec::User;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

impl KcpConfig {
    /// What `slot` runs, or would if it were started now: an upgrade goes over the configuration.
    pub fn program_of(&self, slot: SlotName) -> Program {
        self.releases.of(slot).map_or_else(|| self.program.clone(), |chosen| chosen.program())
    }

    /// Ends what a daemon left in the middle of a certificate's renewal. Blocking; before anything is adopted.
    pub fn recover(&self) -> Result<(), String> {
        Places::new(&self.layout).recover().map_err(|error| error.to_string())
    }

    /// What consumers reach kcp with.
    pub fn consumer_kubeconfig(&self) -> PathBuf {
        self.layout.kcp().join(material::KUBECONFIG)
    }
}

/// The fallback for a host where a port that the kernel chose cannot be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotPorts {
    pub a: u16,
    pub b: u16,
}

impl SlotPorts {
    fn address(self, slot: SlotName) -> SocketAddr {
        let port = match slot {
            SlotName::A => self.a,
            SlotName::B => self.b,
        };
        SocketAddr::from((Ipv4Addr::LOCALHOST, port))
    }
}

/// What the two slots have in common. Whatever differs between them is derived from the slot's name.
#[derive(Debug, Clone)]
pub struct KcpConfig {
    pub layout: Layout,
    /// The configured one; see [`Self::program_of`].
    pub program: Program,
    pub releases: Releases,
    /// The API server a stand-in for kcp serves through; the real kcp never learns of it.
    pub kube_apiserver: PathBuf,
    /// How a stand-in is told to misbehave: see [`stand_in`].
    pub stand_in_knobs: BTreeMap<String, String>,
    /// Port of the front on 127.0.0.1: what consumers, and the Shard object, know as kcp.
    pub front_port: u16,
    /// See [`defaults::SHUTDOWN_DELAY`].
    pub shutdown_delay: Duration,
    /// Where the slots' kcps listen on 127.0.0.1; `None`: where the kernel puts them.
    pub ports: Option<SlotPorts>,
    /// See [`defaults::GOAWAY_CHANCE`].
    pub goaway_chance: GoawayChance,
    /// Account of the slots' processes when the daemon is root.
    pub owner: Option<User>,
}
