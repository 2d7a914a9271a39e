//! Which daemon is meant: its state directory and, from that, its control socket.

use super::exit::CliError;
use crate::config::{ConfigError, Overrides, Surroundings, defaults};
use crate::control::rendezvous;
use crate::layout::Layout;
use clap::Args;
use std::io;
use std::path::{Path, PathBuf};

/// Where `berth dev` keeps everything, below the current directory.
const DEV_STATE: &str = ".berth";

#[derive(Debug, Clone, Default, Args)]
pub struct Place {
    /// State directory [default: ./.berth if there is one (`dev`: always), else /var/lib/berth for root and
    /// $XDG_STATE_HOME/berth for everyone else]
    #[arg(long, global = true, env = "BERTH_STATE", value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Directory for sockets [default: a short one derived from the state directory]
    #[arg(long, global = true, env = "BERTH_RUN_DIR", value_name = "DIR")]
    pub run_dir: Option<PathBuf>,
}

impl Place {
    /// For `dev`: everything in `./.berth` unless told otherwise.
    pub fn dev(&self) -> io::Result<Layout> {
        let state = self.state.as_deref().unwrap_or(Path::new(DEV_STATE));
        let run = self.run_dir.as_deref().map(std::path::absolute).transpose()?;
        Ok(Layout::new(std::path::absolute(state)?, run))
    }

    /// For `up`: what overrides the configuration file.
    pub fn overrides(&self) -> io::Result<Overrides> {
        Ok(Overrides {
            state_dir: self.state.as_deref().map(std::path::absolute).transpose()?,
            run_dir: self.run_dir.as_deref().map(std::path::absolute).transpose()?,
        })
    }

    /// Where the services of `file` keep their state unless told otherwise: `web.toml` has `web.berth` beside it.
    pub fn beside(file: &Path) -> PathBuf {
        file.with_extension("berth")
    }

    /// The layout of the daemon that is meant, which need not run. Blocking.
    pub(super) fn layout(&self) -> Result<Layout, CliError> {
        let Overrides { state_dir, run_dir } = self.overrides()?;
        let here = std::path::absolute(DEV_STATE)?;
        let state =
            choose(state_dir, here, Path::is_dir, &Surroundings::read()).ok_or(ConfigError::NoStateDir)?;
        Ok(rendezvous::find(state, run_dir))
    }
}

fn choose(
    named: Option<PathBuf>,
    here: PathBuf,
    exists: impl Fn(&Path) -> bool,
    surroundings: &Surroundings,
) -> Option<PathBuf> {
    named.or_else(|| exists(&here).then_some(here)).or_else(|| defaults::state_dir(surroundings).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_directory_wins_then_the_one_here_then_the_default() {
        let root = Surroundings { root: true, ..Surroundings::default() };
        let here = || PathBuf::from("/w/.berth");
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(choose(path("/named"), here(), |_| true, &root), path("/named"));
        assert_eq!(choose(None, here(), |_| true, &root), path("/w/.berth"));
        assert_eq!(choose(None, here(), |_| false, &root), path("/var/lib/berth"));
        assert_eq!(choose(None, here(), |_| false, &Surroundings::default()), None);
    }
}
