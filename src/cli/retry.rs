//! `berth retry CHAIN`: what gave up, was refused or is done is tried again. Takes the chains of kcp as well.

use super::exit::{CliError, Exit};
use super::live::{Live, Output};
use super::terminal;
use crate::control::Client;
use crate::names;
use clap::Args;

#[derive(Debug, Args)]
pub struct Retry {
    /// A cluster, kcp-store, slot-a or slot-b
    #[arg(value_parser = names::chain)]
    chain: String,
}

pub(super) async fn run(client: &Client, Retry { chain }: &Retry) -> Result<Exit, CliError> {
    let mut live = Live::of_chain(Output::Stderr, chain).since(&client.status().await?);
    live.during(client.retry(chain), || async { client.status().await.ok() }).await??;
    terminal::say(&format!("{chain} is ready again"))?;
    Ok(Exit::Ok)
}
