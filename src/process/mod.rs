//! Processes of this host: born, watched, signalled, and reaped to the last descendant.
//!
//! The supervision tree calls [`ProcessHost`]; the tenant and kcp adapters call [`tool::run`] for short programs such as
//! initdb; `main` takes [`lock::StateLock`], makes the host and starts [`orphans::adopt`], in this order.
//! Nothing here decides when something starts or ends.
//!
//! ```text
//! spawn     ProcessSpec -> a process in a session and cgroup of its own, marked by token and component
//! identity  (boot id, pid, start time), and the pidfd that is checked against it
//! life      one watched process: its exit status, its signals;  post_mortem  the status of one that was nobody's child here;  kernel_log  whom memory killed
//! ledger    one record per component, so that the next daemon finds what this one leaves
//! leftovers  records and cgroups of the dead, kept for a moment for their successors
//! table     all processes of the host at one moment;  remains  which of them belong to a record
//! cgroup    everybody of a component in one place;  hierarchy  where on this host;  limits  what it may take
//! reap      SIGKILL until nothing is left
//! adoption  what an earlier daemon left and the tree takes over;  unrecorded  what of it was not written down
//! survivors SIGKILL for the rest of it;  strays  what outlives that
//! memory    what components hold of it;  belongings  what a uid has that is one cluster's
//! writers   whether a program's file can be executed yet
//! orphans   zombies that were reparented to the daemon
//! birth     what a child starts with;  births  the threads that bear it;  raw  the code between fork and exec
//! ```

mod adoption;
mod belongings;
mod birth;
mod births;
mod cgroup;
mod children;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod hierarchy;
mod host;
mod identity;
mod kernel_log;
mod ledger;
mod leftovers;
mod life;
mod limits;
pub mod lock;
mod mark;
mod memory;
pub mod orphans;
mod post_mortem;
mod raw;
mod reap;
mod remains;
mod spawn;
mod strays;
pub mod survivors;
mod table;
pub mod tool;
mod unrecorded;
mod writers;

pub use belongings::{inside, leave_nothing_of};
pub use host::ProcessHost;
pub use identity::{age_of, is_alive, of as identity_of};
pub(crate) use ledger::programs_on_record;
pub use limits::{ComponentLimits, Limits};
pub use memory::{Held, held_by};
pub(crate) use raw::{share_one_heap, watch};
pub(crate) use writers::wait_for_none;

#[cfg(test)]
mod tests;
