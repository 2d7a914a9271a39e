//! `berth upgrade`: another binary takes over while everything runs.

use super::exit::{CliError, Exit};
use super::terminal;
use crate::control::api::About;
use crate::control::{Client, ClientError, deadline};
use crate::process::identity_of;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The successor's socket is not there yet, or its predecessor's is there still.
const NEXT_LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub struct Upgrade {
    /// The new berth [default: the one this command is]
    #[arg(value_name = "PROGRAM")]
    pub program: Option<PathBuf>,
}

pub(super) async fn run(client: &Client, args: &Upgrade) -> Result<Exit, CliError> {
    let program = match &args.program {
        Some(program) => std::path::absolute(program)?,
        None => std::env::current_exe()?,
    };
    let before = client.about().await?;
    client.upgrade(&program).await?;
    let after = successor(client, &before).await?;
    terminal::say(&format!(
        "berth {} has taken over from {} as pid {}: see `berth status`",
        after.version, before.version, after.pid
    ))?;
    Ok(Exit::Ok)
}

async fn successor(client: &Client, before: &About) -> Result<About, CliError> {
    let end = Instant::now() + deadline::SUCCESSION;
    loop {
        let seen = client.about().await;
        match seen {
            Ok(about) if about.instance != before.instance => return Ok(about),
            Err(error @ (ClientError::Permission { .. } | ClientError::Stranger { .. })) => {
                return Err(error.into());
            }
            // It keeps its pid: without it there will be no successor, however long it is waited for.
            Err(error) if Instant::now() >= end || identity_of(before.pid).is_none() => {
                return Err(error.into());
            }
            Ok(_) if Instant::now() >= end => {
                let socket = client.socket().to_owned();
                return Err(ClientError::Deadline { socket, deadline: deadline::SUCCESSION }.into());
            }
            _ => sleep(NEXT_LOOK).await,
        }
    }
}
