//! `berth kcp ...`

use super::exit::{CliError, Exit};
use super::live::{Live, Output};
use super::terminal::{self, Style};
use super::{handovers, status, units};
use crate::control::Client;
use berth_actors::handover::Wish;
use berth_actors::status::HandoverOutcome;
use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum KcpVerb {
    /// Move kcp to the other slot without losing a client's request
    Handover {
        /// Only say what would happen, and what speaks against it; ends with 5 if anything does
        #[arg(long)]
        dry_run: bool,
    },
    /// Show past handovers: why, how they ended, where their time went
    History(History),
}

#[derive(Debug, Args)]
pub struct History {
    /// How many of the latest
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10)]
    count: usize,
    /// JSON instead of text
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(client: &Client, verb: KcpVerb) -> Result<Exit, CliError> {
    match verb {
        KcpVerb::Handover { dry_run: true } => plan(client, Wish::Plain).await,
        KcpVerb::Handover { dry_run: false } => handover(client, Wish::Plain).await,
        KcpVerb::History(args) => history(client, &args).await,
    }
}

async fn handover(client: &Client, wish: Wish) -> Result<Exit, CliError> {
    let mut live = Live::new(Output::Stderr).since(&client.status().await?);
    let handover = live.during(client.handover(wish), || async { client.status().await.ok() }).await??;
    let took = units::took(handover.spent.whole_us / 1000);
    match handover.outcome {
        HandoverOutcome::Done => {
            terminal::say(&format!("kcp is served by slot {} now; the handover took {took}", handover.to))?;
            Ok(Exit::Ok)
        }
        HandoverOutcome::RolledBack(reason) => {
            terminal::remark(&format!(
                "berth: the handover was rolled back, slot {} serves as before: {reason}",
                handover.from
            ))?;
            Ok(Exit::Failed)
        }
        HandoverOutcome::Running => {
            terminal::remark("berth: the handover still runs; see `berth status`")?;
            Ok(Exit::Failed)
        }
    }
}

async fn plan(client: &Client, wish: Wish) -> Result<Exit, CliError> {
    let plan = client.plan_handover(wish).await?;
    terminal::write(handovers::plan(&plan).as_bytes())?;
    Ok(if plan.refusals.is_empty() { Exit::Ok } else { Exit::Refused })
}

async fn history(client: &Client, args: &History) -> Result<Exit, CliError> {
    let mut history = client.handovers().await?;
    history.handovers.drain(..history.handovers.len().saturating_sub(args.count));
    if args.json {
        terminal::say(&status::json(&history)?)?;
        return Ok(Exit::Ok);
    }
    for line in &history.unreadable {
        terminal::remark(&format!("berth: {}", terminal::harmless(line)))?;
    }
    terminal::write(handovers::history(&history, Style::of(&std::io::stdout())).as_bytes())?;
    Ok(Exit::Ok)
}
