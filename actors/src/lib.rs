//! The supervision tree.
pub mod handover;
pub mod host;
pub mod identity;
pub mod message;
pub mod policy;
pub mod spec;
pub mod status;
