//! A stand-in for kcp: its argv, its five files, its one listener, its answers, its leader lease and its way to end.
//!
//! Behind the TLS front of this process stands a real kube-apiserver, a child on the same kine, so that objects,
//! resource versions, watches and preconditions are the real thing. The front adds what makes it kcp: logical cluster
//! paths, the two admin tokens, start-up hooks, shutdown. Every logical cluster that exists (`root`, `system:admin`)
//! shows the one backend store; nothing here keeps workspaces apart.
//!
//! Environment, beside kcp's own argv:
//!
//! | variable | effect |
//! |---|---|
//! | `KCP_STANDIN_KUBE_APISERVER` | path of the kube-apiserver binary; needed by `start` |
//! | `KCP_STANDIN_READY_AFTER=<seconds>` | not ready before this long after the exec (a real kcp: 7 or 25) |
//! | `KCP_STANDIN_HANG=1` or `once` | the hang of a start beside a young leader: three hooks stay red, SIGTERM does not end it; `once` only on the first start of a root |
//! | `KCP_STANDIN_CRASH_AFTER_READY=<seconds>` | ends with exit code 2, without any shutdown |
//! | `KCP_STANDIN_IGNORE_SIGTERM=1` | SIGTERM changes nothing at all |
//! | `KCP_STANDIN_SECOND_LISTENER=1` | one LISTEN socket too many |
//! | `KCP_STANDIN_SILENT_WATCHES=<file>` | no event comes out of any watch while that file exists: a stalled kine, as clients see it |
//! | `KCP_STANDIN_NO_DEFAULT_ROUTE=1` | refuses to start as kcp does in a network without a default route |
//! | `KCP_STANDIN_LEASE_RETRY=<seconds>` | looks at the lease this often (a real kcp: 2, and a candidate up to 4.4) |
//! | `KCP_STANDIN_HALF_CLOSE=1` | serves an HTTP/1.1 client that has closed its direction; a Go server gives its request up |
//!
//! A request with the header `kcp-stand-in-delay: <milliseconds>` is answered that much later: what a webhook or a busy
//! store makes of it. A real kcp does not know the header.
//!
//! The life of the process, top to bottom, is [`start`].

mod answer;
mod args;
mod auth;
mod backend;
mod body;
mod bootstrap;
mod certificate;
mod election;
mod flags;
mod health;
mod klog;
mod knobs;
mod kubeconfig;
mod lease;
mod material;
mod proxy;
mod routes;
mod serve;
mod shutdown;
mod start;
mod state;
mod upstream;

use crate::tethered;
use args::Command;
use std::io::Write;
use std::process::ExitCode;

/// No release of kcp calls itself that: whoever reads it knows what runs.
const VERSION: &str = "v1.36.0+kcp-v0.33.0-stand-in";

/// Runs the stand-in to its end. `args` is argv without `argv[0]`.
#[expect(clippy::needless_pass_by_value, reason = "a process owns its argv")]
pub fn main(args: Vec<String>) -> ExitCode {
    if let Some(failed) = tethered::exec(&args) {
        return fail(&failed);
    }
    match args::parse(&args) {
        Ok(Command::Version) => print(&format!("kcp version {VERSION}\n")),
        Ok(Command::Help) => print(flags::HELP),
        Ok(Command::StartHelp) => print(flags::START_HELP),
        Ok(Command::StartOptions) => print(&flags::options()),
        Ok(Command::Start(options)) => run(&options),
        Err(error) => fail(&error),
    }
}

fn run(options: &args::Options) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start a runtime: {error}")),
    };
    // The backend is spawned inside this future, so by the main thread: its death signal is bound to the thread that
    // spawned it, and only this thread lives as long as the process.
    let end = runtime.block_on(start::start(options));
    runtime.shutdown_background();
    match end {
        Ok(code) => ExitCode::from(code),
        Err(error) => fail(&error.to_string()),
    }
}

/// kcp's last line: nothing but this text tells why it ended.
fn fail(error: &str) -> ExitCode {
    klog::raw(&format!("Error: {error}\n"));
    ExitCode::FAILURE
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}
