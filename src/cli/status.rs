//! `berth status`

use super::exit::{CliError, Exit};
use super::health::{Health, health};
use super::live::{Live, Output};
use super::terminal::{self, Style};
use super::tree;
use crate::control::{Client, ClientError};
use berth_actors::status::TreeStatus;
use clap::Args;
use std::time::Duration;
use tokio::time::MissedTickBehavior;

/// A person watches: faster would only flicker.
const WATCH: Duration = Duration::from_secs(1);

#[derive(Debug, Args)]
pub struct Status {
    /// JSON instead of a tree
    #[arg(long)]
    pub json: bool,
    /// Stay and show the tree as it changes
    #[arg(short, long, conflicts_with_all = ["json", "check"])]
    pub watch: bool,
    /// End with exit code 6 unless everything is ready
    #[arg(long)]
    pub check: bool,
}

pub(super) async fn run(client: &Client, args: &Status) -> Result<Exit, CliError> {
    if args.watch {
        return watch(client).await;
    }
    let status = client.status().await?;
    if args.json {
        terminal::say(&json(&status)?)?;
    } else {
        terminal::write(tree::render(&status, Style::of(&std::io::stdout())).as_bytes())?;
    }
    Ok(if args.check && health(&status) != Health::Ready { Exit::NotReady } else { Exit::Ok })
}

pub(super) fn json<T: serde::Serialize>(value: &T) -> Result<String, CliError> {
    serde_json::to_string_pretty(value).map_err(|error| CliError::Output(error.into()))
}

/// Until Ctrl-C. A daemon that is being replaced is waited for; one that was never there is an error.
async fn watch(client: &Client) -> Result<Exit, CliError> {
    let mut live = Live::new(Output::Stdout);
    live.show(&client.status().await?)?;
    let mut away = false;
    let mut tick = tokio::time::interval(WATCH);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        match client.status().await {
            Ok(status) => {
                away = false;
                live.show(&TreeStatus::clone(&status))?;
            }
            Err(error @ (ClientError::NoDaemon { .. } | ClientError::Broken { .. })) if !away => {
                away = true;
                live.note(&format!("berth: {error}; waiting for it"))?;
            }
            Err(ClientError::NoDaemon { .. } | ClientError::Broken { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
