//! `berth down`

use super::exit::{CliError, Exit};
use super::live::{Live, Output};
use super::terminal;
use crate::control::Client;

pub(super) async fn run(client: &Client) -> Result<Exit, CliError> {
    let mut live = Live::new(Output::Stderr).since(&client.status().await?);
    live.during(client.down(), || async { client.status().await.ok() }).await??;
    terminal::say("everything is stopped")?;
    Ok(Exit::Ok)
}
