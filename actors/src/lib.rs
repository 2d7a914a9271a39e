//! The supervision tree.
pub mod chain;
pub mod child;
pub mod fake;
pub mod front;
pub mod handover;
pub mod host;
pub mod identity;
pub mod message;
pub mod policy;
pub mod spec;
pub mod status;
pub mod supervisor;
