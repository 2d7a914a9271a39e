//! The identity guard: no Kubernetes process of a tenant starts on a datastore that is not provably its own (I1-I3).
//!
//! `evidence` gathers what the data directory and the database say, `verdict` judges it (pure), `guard` carries the
//! verdict out one durable step at a time and keeps the tenant's database locked for the group's life.
//! It never deletes a foreign claim, overwrites one only where an operator adopted it by name (`plan`, pure, and `adopt`), and
//! an unreachable database is never "absent".

mod adopt;
mod database;
mod evidence;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
#[allow(clippy::module_inception)] // the guard itself; mod.rs is only the map
mod guard;
mod identity;
mod plan;
mod restore;
mod verdict;

pub use evidence::{Evidence, Facts};
pub use guard::{GuardConfig, IdentityGuard, MACHINE_ID};
pub use identity::{Owner, Phase, Record};
pub use plan::{NotAdoptable, plan};
pub use restore::recorded;
pub use verdict::{Refusal, Verdict, verdict};
