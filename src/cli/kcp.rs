//! `berth kcp ...`

use super::exit::{CliError, Exit};
use super::live::{Live, Output};
use super::{terminal, units};
use crate::control::Client;
use crate::files::write_atomic;
use berth_actors::handover::Wish;
use berth_actors::status::HandoverOutcome;
use clap::Subcommand;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum KcpVerb {
    /// Move kcp to the other slot without losing a client's request
    Handover,
    /// Print the kubeconfig that kcp's clients use, through the front
    Kubeconfig {
        /// Write it to this file (mode 0600) instead
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

pub(super) async fn run(client: &Client, verb: KcpVerb) -> Result<Exit, CliError> {
    match verb {
        KcpVerb::Handover => handover(client).await,
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

async fn handover(client: &Client) -> Result<Exit, CliError> {
    let mut live = Live::new(Output::Stderr).since(&client.status().await?);
    let handover =
        live.during(client.handover(Wish::Plain), || async { client.status().await.ok() }).await??;
    let took = units::took(handover.phases.iter().map(|phase| phase.took_ms).sum());
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
