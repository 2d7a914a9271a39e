//! `berth kcp ...`

use super::exit::{CliError, Exit};
use super::live::{Live, Output};
use super::{terminal, units};
use crate::control::Client;
use berth_actors::handover::Wish;
use berth_actors::status::HandoverOutcome;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum KcpVerb {
    /// Move kcp to the other slot without losing a client's request
    Handover,
}

pub(super) async fn run(client: &Client, verb: KcpVerb) -> Result<Exit, CliError> {
    match verb {
        KcpVerb::Handover => handover(client).await,
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
