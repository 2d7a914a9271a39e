//! One rotation a tenant at a time: an operator's and the daemon's own look do not meet, nor either of them a backup. An
//! operator waits for the daemon's look, which nobody asked for; whoever deletes the tenant has it recalled.

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
    taken: Mutex<BTreeMap<String, Taken>>,
    given_back: Notify,
}

#[derive(Debug)]
struct Taken {
    by: By,
    recall: CancellationToken,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Operator,
    Upkeep,
}

/// Given back when dropped.
#[derive(Debug)]
pub(in super::super) struct Turn {
    turns: Turns,
    cluster: String,
    recall: CancellationToken,
}

impl Turns {
    /// For what an operator asked for. Waits for the daemon's own look, but not for another operator. Cancel-safe.
    pub(in super::super) async fn take(&self, cluster: &str, within: Duration) -> Result<Turn, Refusal> {
        let free = async {
            loop {
                let given_back = self.0.given_back.notified();
                tokio::pin!(given_back);
                given_back.as_mut().enable();
                match self.try_take(cluster, By::Operator) {
                    Err(By::Upkeep) => given_back.await,
                    Err(By::Operator) => return Err(in_use(cluster)),
                    Ok(turn) => return Ok(turn),
                }
            }
        };
        tokio::time::timeout(within, free).await.unwrap_or_else(|_| Err(in_use(cluster)))
    }

    /// For the daemon's own look, which can be had later.
    pub(super) fn take_for_upkeep(&self, cluster: &str) -> Option<Turn> {
        self.try_take(cluster, By::Upkeep).ok()
    }

    fn try_take(&self, cluster: &str, by: By) -> Result<Turn, By> {
        let mut taken = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = taken.get(cluster) {
            return Err(taken.by);
        }
        let recall = CancellationToken::new();
        taken.insert(cluster.to_owned(), Taken { by, recall: recall.clone() });
        Ok(Turn { turns: self.clone(), cluster: cluster.to_owned(), recall })
    }

    /// Has the one that is taken recalled, and waits for it. Whoever works under it ends with the file it is at.
    pub(in super::super) async fn recall(&self, cluster: &str, within: Duration) -> Result<Turn, Refusal> {
        let recalled = async {
            loop {
                let given_back = self.0.given_back.notified();
                tokio::pin!(given_back);
                given_back.as_mut().enable();
                if let Ok(turn) = self.try_take(cluster, By::Operator) {
                    return turn;
                }
                if let Some(taken) = self.0.taken.lock().unwrap_or_else(PoisonError::into_inner).get(cluster)
                {
                    taken.recall.cancel();
                }
                given_back.await;
            }
        };
        let held = |_| self.try_take(cluster, By::Operator).map_err(|_| in_use(cluster));
        tokio::time::timeout(within, recalled).await.or_else(held)
    }
}

fn in_use(cluster: &str) -> Refusal {
    Refusal::Conflict(format!(
        "credentials of {cluster} are being rotated or backed up just now: try again when that is done; the daemon's log says how far a rotation is, berth events whether a backup has ended"
    ))
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

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn one_cluster_has_one_turn_at_a_time_and_others_have_theirs() {
        let turns = Turns::default();
        let held = turns.take("demo", PATIENCE).await.unwrap();
        let began = tokio::time::Instant::now();
        assert!(turns.take("demo", PATIENCE).await.is_err());
        assert_eq!(began.elapsed(), Duration::ZERO, "nobody waits for another operator");
        assert!(turns.take_for_upkeep("demo").is_none());
        turns.take("other", PATIENCE).await.unwrap();
        drop(held);
        turns.take("demo", PATIENCE).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn an_operator_waits_for_the_daemons_look_but_not_for_ever() {
        let turns = Turns::default();
        let look = turns.take_for_upkeep("demo").unwrap();
        let late = turns.take("demo", PATIENCE).await;
        assert!(matches!(late, Err(Refusal::Conflict(_))), "{late:?}");
        let (order, ()) = tokio::join!(turns.take("demo", PATIENCE), async { drop(look) });
        order.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_is_recalled_and_waited_for_but_not_for_ever() {
        let turns = Turns::default();
        let held = turns.take("demo", PATIENCE).await.unwrap();
        let deaf = turns.recall("demo", PATIENCE).await;
        assert!(matches!(deaf, Err(Refusal::Conflict(_))), "{deaf:?}");
        let rotation = async {
            held.recalled().await;
            drop(held);
        };
        let (recalled, ()) = tokio::join!(turns.recall("demo", PATIENCE), rotation);
        let erasure = recalled.unwrap();
        assert!(turns.take("demo", PATIENCE).await.is_err(), "nothing begins while it is erased");
        drop(erasure);
        turns.take("demo", PATIENCE).await.unwrap();
    }
}
