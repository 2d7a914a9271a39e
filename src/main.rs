//! One binary, several lives: the daemon (`up`, `dev`), its command line, and, called by another name, the cloud controller
//! manager and the stand-ins for kcp and k3s. The rest of the daemon's life, top to bottom, is in `daemon::up` and `daemon::dev`.

use berth::assets::{CLOUD_CONTROLLER_MANAGER, KCP_STAND_IN};
use berth::cli::{self, Cli, Verb};
use berth::{ccm, daemon, supervise};
use clap::Parser;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args();
    let called = arguments.next().unwrap_or_default();
    match Path::new(&called).file_name().and_then(|name| name.to_str()) {
        Some(CLOUD_CONTROLLER_MANAGER) => return ccm::main(),
        Some(berth_stand_ins::k3s::NAME) => return berth_stand_ins::k3s::main(arguments.collect()),
        Some(name) if name.starts_with(KCP_STAND_IN) => {
            return berth_stand_ins::kcp::main(arguments.collect());
        }
        _ => {}
    }
    let Cli { place, verb } = Cli::parse();
    match verb {
        Verb::Up(up) => daemon::up(&place, &up),
        Verb::Dev(dev) => daemon::dev(&place, dev),
        Verb::Supervise(args) => supervise::supervise(&place, &args),
        Verb::Client(verb) => cli::run(&place, verb),
    }
}
