//! The tree's events for whoever asks: the latest ones from memory, then each new one, without a gap or a duplicate.
//!
//! `main` feeds it from the tree's broadcast channel through [`EventHub::record_from`]; the events route subscribes.

use super::api::StampedEvent;
use berth_actors::message::TreeEvent;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::broadcast;

/// How many past events are kept: enough for the story of a bad minute with many tenants, about 100 KiB.
const KEPT: usize = 1000;
/// How far a slow reader may fall behind before it loses events.
const LAG: usize = 1024;

/// Cheap to clone; all clones are one hub.
#[derive(Debug, Clone)]
pub struct EventHub {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// Held while an event is kept and sent, and while a reader copies and subscribes: that is what closes the gap.
    kept: Mutex<VecDeque<Kept>>,
    live: broadcast::Sender<StampedEvent>,
}

/// Written out only for a reader: most events have none, and a restart is under way while they are recorded.
#[derive(Debug)]
struct Kept {
    at: OffsetDateTime,
    event: TreeEvent,
}

impl Kept {
    fn stamped(&self) -> StampedEvent {
        StampedEvent { at: self.at.format(&Rfc3339).unwrap_or_default(), event: self.event.clone() }
    }
}

impl Default for EventHub {
    fn default() -> Self {
        Self::new()
    }
}

impl EventHub {
    pub fn new() -> Self {
        Self { shared: Arc::new(Shared { kept: Mutex::default(), live: broadcast::channel(LAG).0 }) }
    }

    /// Records one event, stamped with the present time.
    pub fn record(&self, event: TreeEvent) {
        let latest = Kept { at: crate::clock::now(), event };
        let mut kept = self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() == KEPT {
            kept.pop_front();
        }
        if self.shared.live.receiver_count() > 0 {
            // Nobody listening any more is no failure: the event is kept.
            let _ = self.shared.live.send(latest.stamped());
        }
        kept.push_back(latest);
    }

    /// Records everything `source` sends until its sender is gone. Cancel-safe.
    pub async fn record_from(self, mut source: broadcast::Receiver<TreeEvent>) {
        loop {
            match source.recv().await {
                Ok(event) => self.record(event),
                Err(broadcast::error::RecvError::Lagged(lost)) => self.record(lost_events(lost)),
                Err(broadcast::error::RecvError::Closed) => return,
            }
        }
    }

    /// What was kept, and a receiver that begins right after it.
    pub fn subscribe(&self) -> (Vec<StampedEvent>, broadcast::Receiver<StampedEvent>) {
        let kept = self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner);
        (kept.iter().map(Kept::stamped).collect(), self.shared.live.subscribe())
    }
}

/// Stands in the stream where events are missing.
pub(super) fn lost_events(lost: u64) -> TreeEvent {
    TreeEvent { subject: "events".to_owned(), what: format!("{lost} events were lost here: read too slowly") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(what: &str) -> TreeEvent {
        TreeEvent { subject: "demo/kine".to_owned(), what: what.to_owned() }
    }

    #[tokio::test]
    async fn a_subscriber_gets_the_past_and_then_the_future_once_each() {
        let hub = EventHub::new();
        hub.record(event("first"));
        let (past, mut live) = hub.subscribe();
        hub.record(event("second"));
        assert_eq!(past.iter().map(|e| e.event.what.as_str()).collect::<Vec<_>>(), ["first"]);
        assert_eq!(live.recv().await.unwrap().event.what, "second");
        assert!(live.try_recv().is_err());
    }

    #[tokio::test]
    async fn only_the_latest_events_are_kept() {
        let hub = EventHub::new();
        for number in 0..KEPT + 3 {
            hub.record(event(&number.to_string()));
        }
        let (past, _) = hub.subscribe();
        assert_eq!((past.len(), past[0].event.what.as_str()), (KEPT, "3"));
    }

    #[tokio::test]
    async fn a_lagging_source_leaves_a_mark_and_recording_ends_with_its_sender() {
        let (sender, source) = broadcast::channel(2);
        for number in 0..5 {
            sender.send(event(&number.to_string())).unwrap();
        }
        drop(sender);
        let hub = EventHub::new();
        hub.clone().record_from(source).await;
        let what: Vec<_> = hub.subscribe().0.into_iter().map(|e| e.event.what).collect();
        assert_eq!(what, ["3 events were lost here: read too slowly", "3", "4"]);
    }
}
