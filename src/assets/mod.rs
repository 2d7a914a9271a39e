//! Component binaries: where they come from, and the content-addressed store they are run from (S1, S2, D1).
//!
//! The daemon calls [`provision`] before it starts anything and gets back paths it can execute. Sources are the ordinary
//! clients, `pip` and `go`; every byte is pinned by hash in `deploy/`. Nothing here starts a component.

mod ahead;
pub mod catalogue;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod golang;
mod hashed;
mod itself;
mod k3s;
mod overrides;
mod packed;
pub mod progress;
mod provision;
mod record;
mod store;
mod tool;
mod wheel;

pub use itself::{CLOUD_CONTROLLER_MANAGER, KCP_STAND_IN};
pub use overrides::{OverrideError, Overrides};
pub use packed::PackedError;
pub use progress::{Advance, Origin, Progress};
pub use provision::{ProvisionError, provision};
pub(crate) use provision::{open, served};
pub use record::{Recipe, Record};
pub use store::{Store, StoreError};
pub use tool::ToolError;
pub use wheel::WheelError;
