//! Clients of every kind against the front, through handovers and crashes, and the account of what they saw.
//!
//! ```text
//! args      what is asked           classes   the clients there are        gate     how fast they ask
//! session   a load, start to end ─▶ requests, watching, kube_rs over line (hyper), and go (net/http)
//! board     what they saw           report, bars, losses   tables, and the bars a run must hold
//! berth     a daemon of our own     handovers, crashes  what is done to it meanwhile
//! ```
//! The test `load` runs a short form; the example is the long one, and a load for anybody's front.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    unreachable_pub,
    missing_debug_implementations,
    reason = "a load that cannot go on has failed; its files need not outlive a crash; the test and the example use their own part"
)]

mod args;
mod bars;
pub mod berth;
mod board;
mod classes;
mod crashes;
pub mod gate;
mod go;
pub mod handovers;
mod kube_rs;
mod line;
mod losses;
pub mod report;
mod requests;
pub mod session;
mod target;
mod watching;

use args::Args;
use berth::Berth;
use classes::{Asks, Class};
use gate::Speed;
use report::{Run, Window};
use session::Load;
use std::net::SocketAddr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use target::Target;

/// For an operator who names no time.
const USUAL: Duration = Duration::from_secs(30);

pub fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let args = match Args::parse(&words) {
        Ok(Some(args)) => args,
        Ok(None) => {
            println!("{}", args::USAGE);
            return ExitCode::SUCCESS;
        }
        Err(reason) => {
            println!("{reason}");
            return ExitCode::from(2);
        }
    };
    println!("load {}", words.join(" "));
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = run(&args) => outcome,
            _ = tokio::signal::ctrl_c() => Err("interrupted".to_owned()),
        }
    });
    match outcome.map(|outcome| [outcome.broken, outcome.missed].concat()) {
        Ok(broken) if broken.is_empty() => {
            println!("every bar holds");
            ExitCode::SUCCESS
        }
        Ok(broken) => {
            println!("BROKEN: {}", broken.join("\nBROKEN: "));
            ExitCode::FAILURE
        }
        Err(reason) => {
            println!("FAILED: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// What a run came to. Empty: every bar holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// A request that must not fail, a write that is lost, a watch that was not told.
    pub broken: Vec<String>,
    /// Bars of time, which a busy machine misses by itself.
    pub missed: Vec<String>,
}

impl From<Vec<String>> for Outcome {
    fn from(broken: Vec<String>) -> Self {
        Self { broken, missed: Vec::new() }
    }
}

async fn run(args: &Args) -> Result<Outcome, String> {
    if let Some((front, kubeconfig)) = &args.at {
        return elsewhere(*front, kubeconfig, args).await;
    }
    if args.crashes {
        return through_crashes().await;
    }
    through_handovers(args.handovers, args.goaway.as_deref(), &args.only).await
}

/// A load on a Berth of our own, whose parts die one after the other.
pub async fn through_crashes() -> Result<Outcome, String> {
    if !berth::fault_points_exist() {
        return Err(
            "this build has no places for the daemon to die at: cargo build, without --release".to_owned()
        );
    }
    let mut berth = Berth::new(None);
    berth.ensure_daemon();
    berth.serving().await?;
    let classes = chosen(true, &[]);
    let mut load = Load::start(Target::read(&berth.kubeconfig(), berth.front)?, classes).await?;
    let broken = crashes::run(&mut berth, &mut load).await;
    let mut broken = broken.map_err(|reason| format!("{reason}\n{}", berth.last_words()))?;
    let board = load.finish().await.map_err(|reason| format!("{reason}\n{}", berth.last_words()))?;
    println!("{}", Run::default().table(&board));
    broken.extend(report::accounts(&board));
    Ok(broken.into())
}

fn chosen(own_slots: bool, only: &[String]) -> Vec<Class> {
    let all = classes::all(own_slots).into_iter();
    // What is written is deleted again, whoever writes it.
    let wanted = |class: &Class| {
        only.is_empty() || class.asks == Asks::Delete || only.iter().any(|part| class.name.contains(part))
    };
    all.filter(wanted).collect()
}

/// A load on a front that somebody else runs, and hands over or not as they like.
async fn elsewhere(front: SocketAddr, kubeconfig: &Path, args: &Args) -> Result<Outcome, String> {
    let mut load = Load::start(Target::read(kubeconfig, front)?, chosen(false, &args.only)).await?;
    load.speed(Speed::Full).await;
    let from = load.board.now();
    tokio::time::sleep(args.seconds.unwrap_or(USUAL)).await;
    let windows = vec![Window { from, to: load.board.now(), handover: false }];
    let (board, run) = (load.finish().await?, Run { windows, ..Run::default() });
    println!("{}", run.table(&board));
    Ok(run.broken(&board, true).into())
}

/// A load on a Berth of our own, through so many handovers.
pub async fn through_handovers(
    handovers: usize,
    goaway: Option<&str>,
    only: &[String],
) -> Result<Outcome, String> {
    let mut berth = Berth::new(goaway);
    berth.ensure_daemon();
    berth.serving().await?;
    let mut load = Load::start(Target::read(&berth.kubeconfig(), berth.front)?, chosen(true, only)).await?;
    let mut run = Run::default();
    for number in 1..=handovers {
        handovers::alone(&mut load, &mut run).await;
        let turn = handovers::turn(&berth, &mut load, &mut run).await;
        if let Some(turn) = turn.map_err(|reason| format!("{reason}\n{}", berth.last_words()))? {
            println!("handover {number} in {} ms: {:?}", turn.whole_ms, turn.drain);
            run.turns.push(turn);
        } else {
            run.rolled_back += 1;
        }
    }
    let board = load.finish().await.map_err(|reason| format!("{reason}\n{}", berth.last_words()))?;
    println!("{}", run.table(&board));
    let mut broken = run.broken(&board, goaway.is_some());
    if run.turns.is_empty() {
        broken.push("every handover was rolled back".to_owned());
    }
    Ok(Outcome { broken, missed: bars::missed(&run, &board) })
}
