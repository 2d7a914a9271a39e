//! What the daemon tells systemd (A3): ready, how it goes, stopping, and that it is alive. Without systemd every call is a no-op.

use sd_notify::NotifyState;
use std::io;

/// The control API answers and the tree has its orders; clusters may still be starting.
pub(crate) fn ready() {
    tell(&[NotifyState::Ready]);
}

/// Whether anybody hears what is told here.
pub(super) fn listens() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some_and(|socket| !socket.is_empty())
}

/// One line for `systemctl status`.
pub(crate) fn status(line: &str) {
    tell(&[NotifyState::Status(line)]);
}

/// The same process will say that it is ready again.
pub(super) fn reloading() {
    if let Ok(now) = NotifyState::monotonic_usec_now() {
        tell(&[NotifyState::Reloading, now]);
    }
}

pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping]);
}

/// Never returns. Pets the watchdog from the arbiter itself, so a blocked arbiter is what systemd notices.
pub(crate) async fn stay_alive() {
    let Some(limit) = sd_notify::watchdog_enabled() else { return std::future::pending().await };
    let mut beat = tokio::time::interval(limit / 3);
    loop {
        beat.tick().await;
        tell(&[NotifyState::Watchdog]);
    }
}

fn tell(state: &[NotifyState<'_>]) {
    match sd_notify::notify(state) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, "systemd does not listen");
        }
        _ => {}
    }
}
