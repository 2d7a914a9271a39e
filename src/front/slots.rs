//! The two slots as the front counts them: open connections and bytes of each, and the drain of the ones that belong to a
//! slot when the order is given. Sessions join and leave; `Front::drain` orders and waits.

use super::hold::{Cut, Side};
use super::pace::Pace;
use super::relay::Ending;
use berth_actors::host::DrainReport;
use berth_actors::identity::SlotName;
use berth_actors::status::SlotTraffic;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// What every connection of a slot is told when its drain begins.
#[derive(Debug, Clone)]
pub(super) struct Order {
    /// Connections that joined in this epoch or later are not meant.
    pub epoch: u64,
    pub limit: Duration,
    pub pace: Arc<Pace>,
    /// What this slot takes for an answer.
    pub usual_answer: Duration,
}

/// Bytes of one slot, and how quickly it answers.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    from_clients: AtomicU64,
    from_slot: AtomicU64,
    /// The middle of its answer times, in microseconds: a step up for each slower one, a step down for each quicker one. So a
    /// watch's events and a slow request weigh no more than any other answer.
    usual_answer: AtomicU64,
}

impl Traffic {
    pub(super) fn count(&self, side: Side, bytes: usize) {
        let counter = match side {
            Side::Client => &self.from_clients,
            Side::Server => &self.from_slot,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// The slot took so long from a client's last byte to its own first one. Two at once may count as one.
    pub(super) fn answered_after(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let usual = self.usual_answer.load(Ordering::Relaxed);
        let step = usual / 8 + 1;
        let moved = if took > usual { usual.saturating_add(step) } else { usual - step.min(usual) };
        self.usual_answer.store(moved, Ordering::Relaxed);
    }

    pub(super) fn usual_answer(&self) -> Duration {
        Duration::from_micros(self.usual_answer.load(Ordering::Relaxed))
    }
}

#[derive(Debug)]
pub(super) struct Slot {
    name: SlotName,
    pub traffic: Arc<Traffic>,
    /// Changed only inside `send_if_modified`, so joining, leaving and ordering exclude each other.
    members: watch::Sender<Members>,
}

#[derive(Debug, Default)]
struct Members {
    accepted: u64,
    open: u64,
    /// Raised by every drain: members of an earlier epoch are the ones being drained.
    epoch: u64,
    draining: u64,
    report: DrainReport,
    order: Option<Order>,
    /// When the latest drain was ordered; `None` before the first.
    drain_since: Option<Instant>,
    drains: u64,
    /// All drains together.
    drained: DrainReport,
}

/// A connection's place among its slot's. Leaves when dropped.
#[derive(Debug)]
pub(super) struct Member {
    slot: Arc<Slot>,
    epoch: u64,
    /// A connection that is dropped with its worker was cut by nobody.
    pub ending: Ending,
}

impl Slot {
    pub(super) fn new(name: SlotName) -> Arc<Self> {
        Arc::new(Self { name, traffic: Arc::default(), members: watch::Sender::default() })
    }

    pub(super) fn join(self: &Arc<Self>) -> Member {
        let mut epoch = 0;
        // Nobody waits for a connection more.
        self.members.send_if_modified(|members| {
            members.accepted += 1;
            members.open += 1;
            epoch = members.epoch;
            false
        });
        Member { slot: Arc::clone(self), epoch, ending: Ending::Itself }
    }

    /// Orders every present connection to end within `limit`.
    pub(super) fn order_drain(&self, limit: Duration, pace: Duration) {
        self.members.send_modify(|members| {
            members.epoch += 1;
            members.draining = members.open;
            members.report = DrainReport::default();
            members.drain_since = Some(Instant::now());
            members.drains += 1;
            let pace = Arc::new(Pace::new(pace, limit, members.open));
            let usual_answer = self.traffic.usual_answer();
            members.order = Some(Order { epoch: members.epoch, limit, pace, usual_answer });
        });
    }

    /// Resolves when every connection that was ordered to end has done so, or after `patience`.
    pub(super) async fn drained(&self, patience: Duration) -> DrainReport {
        let began = Instant::now();
        let mut changes = self.members.subscribe();
        let emptied = changes.wait_for(|members| members.draining == 0);
        let all_ended = timeout(patience, emptied).await.is_ok();
        let members = self.members.borrow();
        if !all_ended {
            tracing::warn!(slot = %self.name, left = members.draining, "connections outlived their drain");
        }
        DrainReport { took_ms: milliseconds(began.elapsed()), ..members.report }
    }

    pub(super) fn status(&self) -> SlotTraffic {
        let members = self.members.borrow();
        SlotTraffic {
            slot: self.name,
            open: members.open,
            accepted: members.accepted,
            bytes_in: self.traffic.from_clients.load(Ordering::Relaxed),
            bytes_out: self.traffic.from_slot.load(Ordering::Relaxed),
            draining: members.draining,
            last_drain: members.drain_since.map(|_| members.report),
            drains: members.drains,
            drained: members.drained,
        }
    }
}

impl Members {
    fn count_drained(&mut self, ending: Ending) {
        self.draining -= 1;
        self.report.count(ending);
        self.drained.count(ending);
        if let (0, Some(since)) = (self.draining, self.drain_since) {
            self.report.took_ms = milliseconds(since.elapsed());
            self.drained.took_ms += self.report.took_ms;
        }
    }
}

fn milliseconds(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

impl Member {
    pub(super) fn traffic(&self) -> Arc<Traffic> {
        Arc::clone(&self.slot.traffic)
    }

    /// The order to end, where one was given after it joined.
    pub(super) fn order(&self) -> Option<Order> {
        self.slot.members.borrow().order.clone().filter(|order| self.epoch < order.epoch)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Only the end of a drain is waited for.
        self.slot.members.send_if_modified(|members| {
            members.open -= 1;
            let drained = self.epoch < members.epoch;
            if drained {
                members.count_drained(self.ending);
            }
            drained && members.draining == 0
        });
    }
}

trait Tally {
    fn count(&mut self, ending: Ending);
}

impl Tally for DrainReport {
    fn count(&mut self, ending: Ending) {
        let (counter, raced) = match ending {
            Ending::Itself | Ending::IdledOut => (&mut self.self_closed, false),
            Ending::Drained { cut: Cut::Held, raced } => (&mut self.held, raced),
            Ending::Drained { cut: Cut::Idle, raced } => (&mut self.idle, raced),
            Ending::Drained { cut: Cut::Forced, raced } => (&mut self.forced, raced),
        };
        *counter += 1;
        self.raced += u64::from(raced);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_answer_is_the_middle_one_whatever_a_few_slow_ones_take() {
        let traffic = Traffic::default();
        for number in 0..1000 {
            let slow = number % 5 == 0;
            traffic.answered_after(Duration::from_millis(if slow { 30_000 } else { 10 }));
        }
        let usual = traffic.usual_answer();
        assert!(usual > Duration::from_millis(5) && usual < Duration::from_millis(20), "{usual:?}");
    }
}
