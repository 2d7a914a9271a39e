//! `berth metrics`

use super::exit::{CliError, Exit};
use super::terminal;
use crate::control::Client;

pub(super) async fn run(client: &Client) -> Result<Exit, CliError> {
    terminal::write(&client.metrics().await?)?;
    Ok(Exit::Ok)
}
