//! `berth config ...`. Needs no daemon.

use super::exit::{CliError, Exit};
use super::{Place, terminal};
use crate::config::{Config, Surroundings};
use clap::Subcommand;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub enum ConfigVerb {
    /// Check a configuration and print what would be in force, each value with its source
    Show {
        /// Configuration file; without it, the defaults
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
}

pub(super) fn run(place: &Place, verb: &ConfigVerb) -> Result<Exit, CliError> {
    match verb {
        ConfigVerb::Show { config } => {
            let config = Config::load(config.as_deref(), &place.overrides()?, &Surroundings::read())?;
            terminal::write(config.to_string().as_bytes())?;
            Ok(Exit::Ok)
        }
    }
}
