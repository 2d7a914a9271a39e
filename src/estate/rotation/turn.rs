//! One rotation a tenant at a time: an operator's and the daemon's own look do not meet, nor either of them a backup. Whoever
//! deletes the tenant has it recalled.

use berth_actors::message::Refusal;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Clone, Default)]
pub(in super::super) struct Turns(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    taken: Mutex<BTreeMap<String, CancellationToken>>,
    given_back: Notify,
}

/// Given back when dropped.
#[derive(Debug)]
pub(in super::super) struct Turn {
    turns: Turns,
    cluster: String,
    recall: CancellationToken,
}

impl Turns {
    pub(in super::super) fn take(&self, cluster: &str) -> Result<Turn, Refusal> {
        let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.contains_key(cluster) {
            return Err(Refusal::Conflict(format!(
                "credentials of {cluster} are being rotated or backed up just now: try again when that is done; the daemon's log says how far a rotation is, berth events whether a backup has ended"
            )));
        }
        let recall = CancellationToken::new();
        taken.insert(cluster.to_owned(), recall.clone());
        Ok(Turn { turns: self.clone(), cluster: cluster.to_owned(), recall })
    }

    /// Has the one that is taken recalled, and waits for it. Whoever works under it ends with the file it is at.
    pub(in super::super) async fn recall(&self, cluster: &str, within: Duration) -> Result<Turn, Refusal> {
        let recalled = async {
            loop {
                let given_back = self.0.given_back.notified();
                tokio::pin!(given_back);
                given_back.as_mut().enable();
                if let Ok(turn) = self.take(cluster) {
                    return turn;
                }
                if let Some(recall) = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner).get(cluster)
                {
                    recall.cancel();
                }
                given_back.await;
            }
        };
        let held = |_| self.take(cluster);
        tokio::time::timeout(within, recalled).await.or_else(held)
    }
}

impl Turn {
    /// Resolves when whoever has it is to leave off.
    pub(super) async fn recalled(&self) {
        self.recall.cancelled().await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.0.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.cluster);
        self.turns.0.given_back.notify_waiters();
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

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_recalled_and_waited_for_but_not_for_ever() {
        let turns = Turns::default();
        let held = turns.take("demo").unwrap();
        let deaf = turns.recall("demo", Duration::from_secs(10)).await;
        assert!(matches!(deaf, Err(Refusal::Conflict(_))), "{deaf:?}");
        let rotation = async {
            held.recalled().await;
            drop(held);
        };
        let (recalled, ()) = tokio::join!(turns.recall("demo", Duration::from_secs(10)), rotation);
        let erasure = recalled.unwrap();
        assert!(turns.take("demo").is_err(), "nothing begins while it is erased");
        drop(erasure);
        turns.take("demo").unwrap();
    }
}
