//! How fast everyone asks: at full speed while something is measured, calmly in between, so that a slot can start on a small
//! machine and a long run leaves no mountain of objects.

use super::classes::{Asks, Class};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speed {
    Calm,
    Full,
    Over,
}

/// A closed loop's pause in a calm; its connection stays in use.
pub const CALM: Duration = Duration::from_millis(500);
/// Calm periods are this much longer where each request costs a handshake, megabytes or a write.
pub const CALMER: u32 = 5;

#[derive(Debug, Clone)]
pub struct Gate(watch::Receiver<Speed>);

impl Gate {
    pub fn new() -> (watch::Sender<Speed>, Self) {
        let (speed, gate) = watch::channel(Speed::Calm);
        (speed, Self(gate))
    }

    pub fn is_over(&self) -> bool {
        *self.0.borrow() == Speed::Over
    }

    pub fn speed(&self) -> Speed {
        *self.0.borrow()
    }

    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until the request after the one that began at `began` is due; false when there is none.
    pub async fn next(&mut self, class: &Class, began: Instant) -> bool {
        loop {
            let pause = match (self.speed(), class.period()) {
                (Speed::Over, _) => return false,
                (Speed::Full, Duration::ZERO) => return true,
                (Speed::Calm, Duration::ZERO) if class.asks == Asks::Post => CALM * CALMER,
                (Speed::Calm, Duration::ZERO) => CALM,
                (Speed::Calm, period) if class.is_costly() => period * CALMER,
                (_, period) => period,
            };
            tokio::select! {
                () = sleep_until(began + pause) => return true,
                () = self.changed() => {}
            }
        }
    }
}
