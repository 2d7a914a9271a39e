//! A cluster in one file: taken while it serves, verified as a whole, unpacked as another cluster.
//!
//! ```text
//! manifest   what a backup says of itself: a header first, every member's digest last      pure
//! archive    writes one: a tar of the cluster's data directory in one zstd frame
//! verify     reads one: every member against the manifest, unpacked or not
//! contents   which files beside the database belong to it
//! take       the copy of a running database, and all of it as a stream
//! wire       that stream, over the control socket to whoever asked
//! upload     a backup that comes the other way
//! staging    a backup that was unpacked and is nobody's yet, until the estate gives it its place
//! ```
//! Nothing here knows the tree; the control API calls it, and the root supervisor sees to it that the cluster stands still.

mod archive;
mod contents;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
pub mod manifest;
pub mod staging;
pub mod take;
pub mod upload;
pub mod verify;
pub mod wire;

pub use manifest::{Header, Manifest};
pub use verify::{BackupError, verify};
