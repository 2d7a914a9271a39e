//! Storms of faults on a running Berth, and what must hold after each of them.
//!
//! ```text
//! plan      a seed becomes storms, a storm a few faults         args     how many, on what
//! storm     carries them out;  system  the daemon they hit       tally    what came of it
//! verdict   what must hold afterwards, seen from outside         census   the processes, from /proc
//! writers   clients that remember every write that was acknowledged
//! component, blueprint, estate, daemon, line                     the stand-ins: small programs under the real tree
//! flood     a storm of another kind: twenty thousand clients at the front
//! ```
//! The test and the example call [`main`], `front_storm` calls [`flood::main`]. Nothing here asks the daemon what it could see for itself.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "a storm that cannot go on has failed; its files need not outlive a crash; it is a crate of its own; each \
              program uses its own part"
)]

mod args;
mod blueprint;
mod census;
mod component;
mod daemon;
mod estate;
pub mod flood;
mod line;
mod plan;
mod storm;
mod system;
mod tally;
mod verdict;
mod writers;

pub use args::Size;
use args::{Args, Kind};
use std::process::ExitCode;
use tokio::signal::unix::{SignalKind, signal};

/// One program, three lives: a stand-in component, the stand-in daemon, and the storm itself.
pub fn main(size: Size) -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some(component::ROLE) => component::main(&words[1..]),
        Some(daemon::ROLE) => daemon::main(&words[1..]),
        _ => match Args::parse(size, &words) {
            Ok(Some(args)) => run(&args),
            Ok(None) => ExitCode::SUCCESS,
            Err(reason) => {
                println!("{reason}");
                ExitCode::from(2)
            }
        },
    }
}

/// Ctrl-C, or a test run that has no more patience: what was started goes with the storm.
async fn interrupted() {
    let mut terminate = signal(SignalKind::terminate()).unwrap();
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

fn run(args: &Args) -> ExitCode {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for run in &args.runs {
        let kind = match run.kind {
            Kind::StandIn => "--stand-in",
            Kind::Real => "--real",
        };
        println!("chaos {kind} --seed {} --faults {} --systems {}", args.seed, run.faults, run.systems);
        let outcome = runtime.block_on(async {
            tokio::select! {
                outcome = storm::run(args.seed, run) => outcome,
                () = interrupted() => Err("interrupted".to_owned()),
            }
        });
        match outcome {
            Ok(tally) => println!("{tally}"),
            Err(reason) => {
                println!("FAILED, with seed {}: {reason}", args.seed);
                // Systems that were still stormed end here.
                drop(runtime);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}
