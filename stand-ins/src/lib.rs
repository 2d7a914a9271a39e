//! Processes that stand in for components a registry does not serve.
//!
//! A stand-in obeys the contract of the real program: the same argv, files, ports, log lines, signals and exit codes.
//! It is for development and tests, and says so in its `--version`.

#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::disallowed_methods,
        reason = "a test that cannot go on has failed; what it reads nobody planted"
    )
)]

mod clock;
pub mod k3s;
pub mod kcp;
mod own_files;
mod tethered;
