//! A stand-in for `k3s server --disable-agent`: its argv, the files it writes, its token, its ports, its way to end.
//!
//! In it run a real kube-apiserver, on k3s's own port with the certificates k3s would have made, and a real
//! kube-controller-manager. So objects, controllers and credentials are the real thing.
//!
//! Not real: there is no scheduler, no supervisor (`/ping`, `/cacerts`, agents cannot join), no bootstrap data in the
//! datastore (the CAs live on disk only), and no packaged component. It says `stand-in` in its `--version` and its first line.
//!
//! | variable | meaning |
//! |---|---|
//! | `K3S_STANDIN_KUBE_APISERVER` | path of the kube-apiserver binary; needed by `server` |
//! | `K3S_STANDIN_KUBE_CONTROLLER_MANAGER` | path of the kube-controller-manager binary; needed by `server` |

mod args;
mod authorities;
mod children;
mod files;
mod logrus;
mod sec1;
mod server;
mod token;

use crate::tethered;
use args::Command;
use std::io::Write;
use std::process::ExitCode;

/// No release of k3s calls itself that: whoever reads it knows what runs.
const VERSION: &str = "v1.36.0+k3s1-stand-in";
/// Its `argv[0]`, by which the one binary knows which of its lives to lead.
pub const NAME: &str = "k3s-stand-in";

/// Runs the stand-in to its end. `args` is argv without `argv[0]`.
#[expect(clippy::needless_pass_by_value, reason = "a process owns its argv")]
pub fn main(args: Vec<String>) -> ExitCode {
    if let Some(failed) = tethered::exec(&args) {
        return fail(&failed);
    }
    match args::parse(&args) {
        Ok(Command::Version) => {
            let text = format!("k3s version {VERSION}\nthis is a stand-in of Berth's, not k3s\n");
            match std::io::stdout().write_all(text.as_bytes()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
        Ok(Command::Server(options)) => run(&options),
        Err(error) => fail(&error),
    }
}

fn run(options: &args::Options) -> ExitCode {
    logrus::info(&format!("Starting k3s {VERSION} (a stand-in of Berth's)"));
    // The children are spawned inside this future, so by the main thread, which lives as long as the process.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("cannot start a runtime: {error}")),
    };
    match runtime.block_on(server::serve(options)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

/// Every fatal error of k3s is one line, and exit code 1.
fn fail(error: &str) -> ExitCode {
    logrus::fatal(error);
    ExitCode::FAILURE
}
