//! The control API: HTTP/JSON over a unix socket that only the daemon's own user and root may use (O2).
//!
//! ```text
//! main   -> server::ControlServer::bind, serve      one task per connection
//! routes -> actix::Recipient<Command>               what the tree decides
//!        -> files::ClusterFiles                     kubeconfigs, nodes, log paths: what lies in files
//!        -> events::EventHub                        the tree's events, the latest ones and those to come
//!        -> daemon::DaemonDesk                      the daemon itself: who it is, and its succession
//! cli    -> client::Client                          nothing else talks to the socket
//! ```
//! No route decides anything about processes; it checks the request, asks, and turns the answer into a status code.

mod answer;
pub mod api;
pub mod client;
pub mod daemon;
pub mod deadline;
pub mod events;
pub mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
pub mod peer;
pub mod rendezvous;
mod routes;
pub mod server;
mod socket;
#[cfg(test)]
pub(crate) mod tests;

pub use client::{Client, ClientError};
pub use daemon::DaemonDesk;
pub use events::EventHub;
pub use files::ClusterFiles;
pub use server::{ControlError, ControlServer};
