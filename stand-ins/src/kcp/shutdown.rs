//! SIGTERM: what clients meet, for how long, and the exit code. The order and the times are kcp's.

use super::klog;
use super::state::{Ending, State};
use std::io;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

/// From the closed listener to the exit: HTTP/2 connections get this long after their GOAWAY.
const SETTLE: Duration = Duration::from_millis(1100);
/// How long kcp tries to say goodbye to a store that does not answer.
const FAREWELL: Duration = Duration::from_secs(10);
/// Between two tries.
const FAREWELL_PAUSE: Duration = Duration::from_millis(250);
/// A start that is told to end goes on to its next stop before it looks.
pub(super) const ABORTED_START: Duration = Duration::from_millis(800);

/// SIGTERM and SIGINT, which kcp treats alike.
#[derive(Debug)]
pub(super) struct Requests {
    term: Signal,
    int: Signal,
    ignored: bool,
}

impl Requests {
    pub(super) fn listen(ignored: bool) -> io::Result<Self> {
        Ok(Self { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())?, ignored })
    }

    /// The next request to end; never, where they are ignored. Cancel-safe.
    pub(super) async fn next(&mut self) {
        loop {
            tokio::select! {
                _ = self.term.recv() => {}
                _ = self.int.recv() => {}
            }
            if !self.ignored {
                return;
            }
        }
    }
}

/// From the first signal to the exit code. Never returns in a hung start.
pub(super) async fn wind_down(state: &State, delay: Duration, requests: &mut Requests) -> u8 {
    event("ShutdownInitiated");
    state.ending.send_replace(Ending::Terminating);
    event("PreShutdownHooksStopped");
    if state.hung() {
        tokio::time::sleep(delay).await;
        event("AfterShutdownDelayDuration");
        std::future::pending::<()>().await;
    }
    tokio::select! {
        () = end(state, delay) => 0,
        () = requests.next() => 1,
    }
}

async fn end(state: &State, delay: Duration) {
    tokio::time::sleep(delay).await;
    event("AfterShutdownDelayDuration");
    event("NotAcceptingNewRequest");
    state.ending.send_replace(Ending::Closing);
    event("InFlightRequestsDrained");
    event("HTTPServerStoppedListening");
    let settled = tokio::time::sleep(SETTLE);
    let deadline = Instant::now() + FAREWELL;
    while !state.store_answers().await && Instant::now() < deadline {
        tokio::time::sleep(FAREWELL_PAUSE).await;
    }
    settled.await;
    klog::info("genericapiserver.go:640", "\"[graceful-termination] apiserver is exiting\"");
}

fn event(name: &str) {
    klog::info(
        "genericapiserver.go:548",
        &format!("\"[graceful-termination] shutdown event\" name=\"{name}\""),
    );
}
