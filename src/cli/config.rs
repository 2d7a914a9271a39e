//! `berth config ...`. Needs no daemon.

use super::exit::{CliError, Exit};
use super::{Place, terminal};
use crate::config::{Config, Surroundings};
use crate::kcp::Releases;
use crate::kcp::releases::Chosen;
use crate::layout::Layout;
use clap::Subcommand;
use std::fmt::Write;
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
            let layout = Layout::new(config.state_dir.value.clone(), config.run_dir.value.clone());
            let mut text = config.to_string();
            if let Some(chosen) = Releases::open(&layout).map_err(CliError::Usage)?.chosen() {
                let Chosen { program, version } = chosen;
                // A comment: what is printed can be read again.
                let _ = writeln!(
                    text,
                    "\n# kcp is {} ({version}) until the next `berth kcp upgrade`",
                    program.display()
                );
            }
            terminal::write(text.as_bytes())?;
            Ok(Exit::Ok)
        }
    }
}
