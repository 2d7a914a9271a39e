//! The kcp stand-in as a process, on a real store: PostgreSQL, kine and kube-apiserver.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]
#![allow(clippy::disallowed_methods, reason = "what a test reads nobody planted")]
#![allow(unreachable_pub, reason = "one crate, nobody outside")]

mod client;
mod handover;
mod lines;
mod misbehaviour;
mod refusals;
mod shutdown;
mod slot;
mod starting;
mod store;
