//! How long a stop may take, and what is said of one that took longer.
//!
//! The root and a group go down under these bounds, whatever hangs. Looks at nothing and waits for nothing.

use crate::host::Processes;
use crate::message::Refusal;
use crate::spec::Step;
use crate::status::{ChainStatus, ChildState, TreeStatus};
use crate::strays;
use std::time::Duration;

/// One try at killing what is left; what outlives it hangs in the kernel.
const REAP: Duration = Duration::from_secs(5);

/// The longest a chain may take to stop: its steps stop one after the other.
pub(crate) fn bound(steps: &[Step]) -> Duration {
    steps.iter().map(|step| step.stop.deadline.saturating_add(REAP)).sum()
}

/// What a stop says that ended everything in the tree.
pub(crate) fn end(processes: &dyn Processes) -> Result<(), Refusal> {
    let strays = strays::lines(processes);
    if strays.is_empty() {
        return Ok(());
    }
    Err(Refusal::Failed(format!(
        "everything is stopped, but for {}; the next daemon takes charge of what is left",
        strays.join(", ")
    )))
}

/// Names what is still alive when the `time` of a stop is over.
pub(crate) fn left(time: Duration, status: &TreeStatus) -> Refusal {
    Refusal::Failed(format!(
        "not everything is stopped after {} s: {}; the next daemon takes charge of what is left",
        time.as_secs(),
        alive(status)
    ))
}

/// Every component that is not down, and what it waits for.
fn alive(status: &TreeStatus) -> String {
    let clusters = status.tenants.iter().chain(&status.slots).chain(&status.store);
    let of_chain = |chain: &ChainStatus| {
        let alive = chain.children.iter().filter(|child| child.state != ChildState::Down);
        let named = alive.map(|child| {
            let pid = child.pid.map_or_else(String::new, |pid| format!(" (pid {pid})"));
            let what = child.waits_for.as_ref().map_or_else(String::new, |what| format!(" waits for {what}"));
            format!("{}/{}{pid}{what}", chain.name, child.name)
        });
        named.collect::<Vec<_>>()
    };
    clusters.chain(&status.services).flat_map(of_chain).collect::<Vec<_>>().join(", ")
}
