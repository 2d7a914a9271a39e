//! One rotation a tenant at a time: an operator's and the daemon's own look do not meet, nor either of them a backup.

use berth_actors::message::Refusal;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Clone, Default)]
pub(in super::super) struct Turns(Arc<Mutex<BTreeSet<String>>>);

/// Given back when dropped.
#[derive(Debug)]
pub(in super::super) struct Turn {
    turns: Turns,
    cluster: String,
}

impl Turns {
    pub(in super::super) fn take(&self, cluster: &str) -> Result<Turn, Refusal> {
        if self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(cluster.to_owned()) {
            return Ok(Turn { turns: self.clone(), cluster: cluster.to_owned() });
        }
        Err(Refusal::Conflict(format!(
            "credentials of {cluster} are being rotated or backed up just now: try again when that is done; the daemon's log and berth events say how far it is"
        )))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.cluster);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cluster_has_one_turn_at_a_time_and_others_have_theirs() {
        let turns = Turns::default();
        let held = turns.take("demo").unwrap();
        assert!(turns.take("demo").is_err() && turns.take("other").is_ok());
        drop(held);
        turns.take("demo").unwrap();
    }
}
