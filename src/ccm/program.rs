//! The program `socialweb-cloud-controller-manager`: from its environment to its exit code. It listens on nothing.

use super::config::Config;
use super::controller;
use std::io::Write;
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// Also the `argv[0]` under which the one binary runs as this program.
pub const PROGRAM: &str = "socialweb-cloud-controller-manager";
/// Printed after a successful list with the own credential: the first one, and the first after each [`LOST_LINE`]. The gate
/// goes by the latest of the two; a test keeps them stable.
pub(super) const READY_LINE: &str = "socialweb-cloud-controller-manager is ready";
/// Printed when the watch on Nodes broke, which it does when the API server ends.
pub(super) const LOST_LINE: &str = "socialweb-cloud-controller-manager lost its watch";
/// Begins the last line of a life that must not be retried unchanged: the gate ends the start at once on it.
pub(super) const REFUSED: &str = "socialweb-cloud-controller-manager refused:";

/// sysexits(3): a configuration error, which no restart cures.
const EX_CONFIG: u8 = 78;
/// sysexits(3): something is missing that may come.
const EX_UNAVAILABLE: u8 = 69;

/// Ends at SIGTERM or SIGINT, with 0, whatever the API server does: nothing that is under way needs to be finished.
pub fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::INFO)
        .init();
    let config = match Config::from_env(|name| std::env::var_os(name)) {
        Ok(config) => config,
        Err(error) => return refused(&error),
    };
    // One thread is enough for one watch, and costs the least memory beside every tenant.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return unavailable(&error),
    };
    let code = runtime.block_on(run(config));
    // A blocking name lookup must not hold the exit up.
    runtime.shutdown_background();
    code
}

async fn run(config: Config) -> ExitCode {
    let (mut term, mut int) = match (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) {
        (Ok(term), Ok(int)) => (term, int),
        (Err(error), _) | (_, Err(error)) => return unavailable(&error),
    };
    tokio::select! {
        biased;
        _ = term.recv() => ExitCode::SUCCESS,
        _ = int.recv() => ExitCode::SUCCESS,
        error = controller::run(&config) => match error {
            controller::RunError::Refused(refusal) => refused(&refusal),
            error => unavailable(&error),
        },
    }
}

/// The gate reads standard output, so this is the one place beside the command line that writes to it.
pub(super) fn announce(line: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{line}").and_then(|()| out.flush()) {
        tracing::error!(%error, "standard output is gone: nobody will see that this program is ready");
    }
}

fn refused(error: &dyn std::error::Error) -> ExitCode {
    announce(&format!("{REFUSED} {error}"));
    ExitCode::from(EX_CONFIG)
}

fn unavailable(error: &dyn std::error::Error) -> ExitCode {
    tracing::error!(%error, "the program cannot go on");
    ExitCode::from(EX_UNAVAILABLE)
}
