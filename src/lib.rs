//! Berth: adapters around the supervision tree of `berth-actors`.
pub mod assets;
pub mod ccm;
pub mod cli;
pub mod control;
pub mod discover;
pub mod front;
pub mod kcp;
pub mod process;
pub mod tenant;
