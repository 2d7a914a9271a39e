//! Component binaries: where they come from, and the content-addressed store they are run from (S1, S2, D1).
//!
//! The daemon calls [`provision`] before it starts anything and gets back paths it can execute; `berth assets` calls the rest.
//! Every byte is pinned by hash, in `deploy/` or by the operator. Nothing here starts a component.
//!
//! ```text
//! catalogue   what each component is, built in;  operators  the operator's own over it;  pins  both, by key and digest
//! provision   every component, ready to run;  acquire  one: the store, at rest, embedded, fetched or built
//! wheel       by pip;  golang  by go;  tool  runs these two;  download  by https;  delivery  one pinned file, unpacked
//! import      files brought by hand;  overrides  files used where they are;  itself  this very program
//! store       assets by digest, whole or absent;  record  what was installed;  hashed  sha256 of what passes by
//! packed      how an asset rests;  ahead  decompression on its own thread;  embedded  inside this program
//! held, usage who needs an asset;  gc  removes the rest;  check  reads everything
//! ```

mod acquire;
mod ahead;
pub mod catalogue;
pub mod check;
mod delivery;
mod download;
mod embedded;
mod error;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
pub mod gc;
mod golang;
mod hashed;
mod held;
mod import;
mod itself;
mod k3s;
pub mod operators;
mod overrides;
mod packed;
mod pinned;
mod pins;
pub mod progress;
mod provision;
mod record;
mod store;
mod tool;
pub mod usage;
mod wheel;

pub use delivery::DeliveryError;
pub use download::DownloadError;
pub use error::AssetError;
pub use import::{ImportError, Named, import};
pub use itself::{CLOUD_CONTROLLER_MANAGER, KCP_STAND_IN};
pub use overrides::{OverrideError, Overrides};
pub use packed::PackedError;
pub use progress::{Advance, Origin, Progress};
pub use provision::{ProvisionError, provision};
pub(crate) use provision::{fetch, open, served};
pub use record::{Recipe, Record};
pub use store::{Store, StoreError};
pub use tool::ToolError;
pub use wheel::WheelError;
