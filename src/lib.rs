//! Berth: the adapters around the supervision tree of `berth-actors`, and the programs made of them.

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "what a test reads nobody planted; its files outlive no crash"
    )
)]

pub mod assets;
pub mod backup;
pub mod ccm;
pub mod cli;
pub mod clock;
pub mod components;
pub mod config;
pub mod control;
pub mod daemon;
pub mod discover;
pub mod estate;
pub mod fault;
pub mod file_events;
pub mod files;
pub mod front;
#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
pub mod guard;
pub mod https;
pub mod kcp;
pub mod layout;
pub mod log_line;
pub mod logs;
pub mod metrics;
pub mod names;
mod off_thread;
mod one_line;
pub mod policy;
pub mod preflight;
pub mod process;
pub mod supervise;
pub mod tenant;
pub mod testing;
