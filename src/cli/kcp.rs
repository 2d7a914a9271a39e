//! `berth kcp ...`

use super::exit::{CliError, Exit};
use super::live::{Live, Output};
use super::terminal::{self, Style};
use super::{handovers, status, units};
use crate::control::api::NewKcp;
use crate::control::{Client, ClientError};
use crate::files::write_atomic;
use berth_actors::handover::Wish;
use berth_actors::status::{HandoverOutcome, HandoverStatus};
use clap::{Args, Subcommand};
use std::path::PathBuf;

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
    /// Move kcp to the other slot with another kcp in it
    #[command(disable_version_flag = true)]
    Upgrade {
        /// Of the asset store: v0.33.0, or as the program calls itself
        #[arg(long, value_name = "VERSION", required_unless_present = "path", conflicts_with = "path")]
        version: Option<String>,
        /// The program
        #[arg(long, value_name = "FILE")]
        path: Option<PathBuf>,
        /// Also when a newer one has bootstrapped the store, or when that cannot be told
        #[arg(long)]
        allow_downgrade: bool,
    },
    /// Renew kcp's certificate, by moving it to the other slot
    RotateCerts {
        /// Also when no client's kubeconfig can trust the new certificate yet
        #[arg(long)]
        now: bool,
    },
    /// Print the kubeconfig that kcp's clients use, through the front
    Kubeconfig {
        /// Write it to this file (mode 0600) instead
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
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
        KcpVerb::Handover { dry_run: false } => shown(client, client.handover(Wish::Plain)).await,
        KcpVerb::History(args) => history(client, &args).await,
        KcpVerb::Upgrade { version, path, allow_downgrade } => {
            let path = path.map(std::path::absolute).transpose()?;
            shown(client, client.upgrade_kcp(&NewKcp { version, path, allow_downgrade })).await
        }
        KcpVerb::RotateCerts { now } => shown(client, client.rotate_certificates(now)).await,
        KcpVerb::Kubeconfig { output } => {
            let kubeconfig = client.kcp_kubeconfig().await?;
            match output {
                Some(path) => write_atomic(&path, &kubeconfig, None)?,
                None => terminal::write(&kubeconfig)?,
            }
            Ok(Exit::Ok)
        }
    }
}

/// Shows the tree on standard error while a handover goes on, and says how it ended.
async fn shown(
    client: &Client,
    handover: impl Future<Output = Result<HandoverStatus, ClientError>>,
) -> Result<Exit, CliError> {
    let mut live = Live::new(Output::Stderr).since(&client.status().await?);
    let handover = live.during(handover, || async { client.status().await.ok() }).await??;
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
