//! `berth service ...`

use super::exit::{CliError, Exit};
use super::terminal;
use crate::control::Client;
use crate::control::api::Action;
use crate::names;
use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct Named {
    #[arg(value_parser = names::service)]
    pub name: String,
}

#[derive(Debug, Subcommand)]
pub enum ServiceVerb {
    /// Start a stopped service and wait until it is ready
    Start(Named),
    /// Stop a service and wait until it is gone; what was started after it keeps running
    Stop(Named),
    /// Try a service again that gave up
    Retry(Named),
}

pub(super) async fn run(client: &Client, verb: ServiceVerb) -> Result<Exit, CliError> {
    let (Named { name }, action, done) = match verb {
        ServiceVerb::Start(named) => (named, Action::Start, "ready"),
        ServiceVerb::Stop(named) => (named, Action::Stop, "stopped"),
        ServiceVerb::Retry(named) => (named, Action::Retry, "ready again"),
    };
    client.act_on_service(&name, action).await?;
    terminal::say(&format!("{name} is {done}"))?;
    Ok(Exit::Ok)
}
