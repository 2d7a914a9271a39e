//! The cloud controller manager of a tenant: both the program and what the daemon does around it.
//!
//! The program (`main`, `config`, `credential_check`, `controller`) watches Nodes with a credential that can do nothing
//! else, and for each Node of the snapshot applies what `diff` says. It listens on nothing and never deletes.
//! The daemon side (`blueprint`, `access`, `credential`, `renewal`) prepares its start. `snapshot` and `node_name` are
//! the one model of `nodes.json` that both share.

mod access;
mod blueprint;
mod config;
mod controller;
mod credential;
mod credential_check;
mod diff;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod node;
mod node_name;
mod program;
mod reconcile;
mod renewal;
mod snapshot;

pub use access::ACCOUNT;
pub use blueprint::{CloudControllerManager, credential_file, snapshot_file};
pub use credential::{CredentialError, Renewed, renew};
pub use node_name::NodeName;
pub use program::{PROGRAM, main};
pub use renewal::Validity;
pub use snapshot::{Instance, Snapshot, SnapshotError};
