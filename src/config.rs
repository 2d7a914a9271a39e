//! The configuration of `berth up`: a TOML file over defaults, each effective value with where it came from.
//!
//! `main` and `berth config show` load it. Reading is strict: an unknown key or a bad value is refused by name, file and
//! line, and nothing starts. It decides nothing and touches no path it names.

mod account;
pub mod defaults;
mod file;
mod front;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod limits;
mod setting;
mod show;
mod supervision;
mod tenants;
mod values;

#[cfg(test)]
mod tests;

pub use account::{Account, UnknownAccount};
pub use defaults::Surroundings;
pub use front::FrontConfig;
pub use limits::{LimitsConfig, LimitsOf};
pub use setting::{Setting, Source};
pub use supervision::{Ride, SupervisionConfig, TermsConfig};
pub use tenants::TenantsConfig;
pub use values::{CoreSize, CpuShare, DiskSize, LogSize, MemorySize, PortRange, SlotPorts, Span};

use values::Positive;

use crate::kcp::GoawayChance;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Everything an operator can set. Fields are named as their keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub state_dir: Setting<PathBuf>,
    /// `None`: derived from the state directory (`Layout::new`).
    pub run_dir: Setting<Option<PathBuf>>,
    /// The account components run under when the daemon is root.
    pub user: Setting<Option<Account>>,
    /// How many chains may be starting at once.
    pub start_concurrency: Setting<usize>,
    /// Whether SIGTERM to the daemon stops everything, or leaves it to the next daemon.
    pub stop_children: Setting<bool>,
    pub front: FrontConfig,
    pub metrics: MetricsConfig,
    pub ports: PortsConfig,
    pub tenants: TenantsConfig,
    pub logs: LogsConfig,
    pub kcp: KcpConfig,
    pub components: ComponentsConfig,
    /// What each component may take of the host.
    pub limits: LimitsConfig,
    /// How each component starts, stops and comes back.
    pub supervision: SupervisionConfig,
}

/// Where Prometheus comes by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetricsConfig {
    /// `None`: the control socket alone answers.
    pub listen: Setting<Option<SocketAddr>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortsConfig {
    /// Leased to components that cannot bind port 0.
    pub range: Setting<PortRange>,
}

/// How much of each component's output is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogsConfig {
    /// Of the file that is written to, and of each older one.
    pub max_size: Setting<LogSize>,
    /// How many older ones.
    pub keep: Setting<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KcpConfig {
    pub enabled: Setting<bool>,
    pub shutdown_delay: Setting<Span>,
    /// Of slot a and slot b. `None`: any free ones.
    pub ports: Setting<Option<SlotPorts>>,
    /// Between two writes of the canary; 0: none flies.
    pub canary_interval: Setting<Span>,
    /// For a watch to see one.
    pub canary_deadline: Setting<Span>,
    pub goaway_chance: Setting<GoawayChance>,
}

/// The operator's own binaries. `None`: the one of the asset store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComponentsConfig {
    /// `bin/` of a PostgreSQL installation; all others are executables.
    pub postgres: Setting<Option<PathBuf>>,
    pub openbao: Setting<Option<PathBuf>>,
    pub kine: Setting<Option<PathBuf>>,
    pub kube_apiserver: Setting<Option<PathBuf>>,
    pub kube_controller_manager: Setting<Option<PathBuf>>,
    pub kcp: Setting<Option<PathBuf>>,
    pub k3s: Setting<Option<PathBuf>>,
    pub ccm: Setting<Option<PathBuf>>,
}

/// What the command line sets; it wins over the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    pub state_dir: Option<PathBuf>,
    pub run_dir: Option<PathBuf>,
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("read the configuration {path}: {source}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path}:{line}: {reason}")]
    Invalid { path: PathBuf, line: usize, reason: String },
    /// From the command line or the environment.
    #[error("{0} must be an absolute path, not {path}", path = .1.display())]
    Relative(&'static str, PathBuf),
    #[error(
        "there is no place for the state directory: HOME and XDG_STATE_HOME are unset; name one with --state"
    )]
    NoStateDir,
}

impl Config {
    /// Reads `path`, where given, over the defaults for `surroundings`. Blocking.
    pub fn load(
        path: Option<&Path>,
        overrides: &Overrides,
        surroundings: &Surroundings,
    ) -> Result<Self, ConfigError> {
        let text = match path {
            Some(path) => crate::files::trusted::text(path)
                .map_err(|source| ConfigError::Read { path: path.to_owned(), source })?,
            None => String::new(),
        };
        Self::parse(&text, path.unwrap_or(Path::new("")), overrides, surroundings)
    }

    /// The pure part of [`Self::load`]; `path` is only named in errors and sources.
    pub fn parse(
        text: &str,
        path: &Path,
        overrides: &Overrides,
        surroundings: &Surroundings,
    ) -> Result<Self, ConfigError> {
        let file = file::read(text, path)?;
        let origin = setting::Origin { text, path };
        let default_state = defaults::state_dir(surroundings);
        let state_dir = override_path(
            "--state",
            overrides.state_dir.as_ref(),
            origin.optional(file.state_dir, default_state.1),
        )?;
        Ok(Self {
            state_dir: state_dir.require(default_state.0).ok_or(ConfigError::NoStateDir)?,
            run_dir: override_path(
                "--run-dir",
                overrides.run_dir.as_ref(),
                origin.optional(file.run_dir, defaults::RUN_DIR),
            )?,
            user: origin.optional(file.user, defaults::USER),
            start_concurrency: origin
                .setting(file.start_concurrency, defaults::start_concurrency(surroundings))
                .map(usize::from),
            stop_children: origin.setting(file.stop_children, defaults::stop_children(surroundings)),
            front: front::read(file.front, origin)?,
            metrics: MetricsConfig { listen: origin.optional(file.metrics.listen, defaults::METRICS_LISTEN) },
            ports: PortsConfig { range: origin.setting(file.ports.range, defaults::PORTS) },
            tenants: tenants::read(file.tenants, origin)?,
            logs: LogsConfig {
                max_size: origin.setting(file.logs.max_size, defaults::LOG_MAX_SIZE),
                keep: origin.setting(file.logs.keep, defaults::LOG_KEEP),
            },
            kcp: KcpConfig {
                enabled: origin.setting(file.kcp.enabled, defaults::KCP_ENABLED),
                shutdown_delay: origin.setting(file.kcp.shutdown_delay, defaults::SHUTDOWN_DELAY),
                ports: origin.optional(file.kcp.ports, defaults::SLOT_PORTS),
                canary_interval: origin.setting(file.kcp.canary_interval, defaults::CANARY_INTERVAL),
                canary_deadline: origin
                    .setting(file.kcp.canary_deadline, defaults::CANARY_DEADLINE)
                    .map(|Positive(span)| span),
                goaway_chance: origin.setting(file.kcp.goaway_chance, defaults::GOAWAY_CHANCE),
            },
            components: {
                let store = |path| origin.optional(path, defaults::COMPONENT);
                let given = file.components;
                ComponentsConfig {
                    postgres: store(given.postgres),
                    openbao: store(given.openbao),
                    kine: store(given.kine),
                    kube_apiserver: store(given.kube_apiserver),
                    kube_controller_manager: store(given.kube_controller_manager),
                    kcp: store(given.kcp),
                    k3s: store(given.k3s),
                    ccm: store(given.ccm),
                }
            },
            limits: limits::read(file.limits, origin)?,
            supervision: supervision::read(file.supervision, origin)?,
        })
    }
}

fn override_path(
    flag: &'static str,
    given: Option<&PathBuf>,
    otherwise: Setting<Option<PathBuf>>,
) -> Result<Setting<Option<PathBuf>>, ConfigError> {
    match given {
        None => Ok(otherwise),
        Some(path) if path.is_absolute() => {
            Ok(Setting { value: Some(path.clone()), source: Source::CommandLine(flag) })
        }
        Some(path) => Err(ConfigError::Relative(flag, path.clone())),
    }
}
