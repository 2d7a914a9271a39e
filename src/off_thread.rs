//! Where blocking work goes: the arbiter, which every actor shares, waits for no disk.
//!
//! Adapters call it around files, `/proc` and short system calls; each names the failures of its own work.

/// Runs `work` on the blocking pool. Dropping the future does not end it. Waits for ever once the runtime shuts down: there
/// is no one left to answer.
pub(crate) async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(value) => value,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            Err(_cancelled) => futures::future::pending().await,
        },
    }
}
