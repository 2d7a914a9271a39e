//! The file as it is written: every key optional, every unknown one refused.

use super::ConfigError;
use super::account::Account;
use super::limits;
use super::setting::line_of;
use super::supervision;
use super::tenants;
use super::values::{AbsolutePath, Connections, Count, LogSize, PortRange, Positive, SlotPorts, Span};
use crate::kcp::GoawayChance;
use crate::one_line::one_line;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::Path;
use toml::Spanned;

type Given<T> = Option<Spanned<T>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct File {
    pub(super) state_dir: Given<AbsolutePath>,
    pub(super) run_dir: Given<AbsolutePath>,
    pub(super) user: Given<Account>,
    pub(super) start_concurrency: Given<Count>,
    pub(super) stop_children: Given<bool>,
    pub(super) front: Front,
    pub(super) metrics: Metrics,
    pub(super) ports: Ports,
    pub(super) tenants: tenants::Given,
    pub(super) logs: Logs,
    pub(super) kcp: Kcp,
    pub(super) components: Components,
    pub(super) limits: limits::Given,
    pub(super) supervision: supervision::Given,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Front {
    pub(super) listen: Given<SocketAddr>,
    pub(super) drain_limit: Given<Span>,
    pub(super) max_connections: Given<Connections>,
    pub(super) max_connections_per_peer: Given<Connections>,
    pub(super) max_parked: Given<Connections>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Metrics {
    pub(super) listen: Given<SocketAddr>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Ports {
    pub(super) range: Given<PortRange>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Logs {
    pub(super) max_size: Given<LogSize>,
    pub(super) keep: Given<Count>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Kcp {
    pub(super) enabled: Given<bool>,
    pub(super) shutdown_delay: Given<Span>,
    pub(super) ports: Given<SlotPorts>,
    pub(super) canary_interval: Given<Span>,
    pub(super) canary_deadline: Given<Positive>,
    pub(super) goaway_chance: Given<GoawayChance>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Components {
    pub(super) postgres: Given<AbsolutePath>,
    pub(super) openbao: Given<AbsolutePath>,
    pub(super) kine: Given<AbsolutePath>,
    pub(super) kube_apiserver: Given<AbsolutePath>,
    pub(super) kube_controller_manager: Given<AbsolutePath>,
    pub(super) kcp: Given<AbsolutePath>,
    pub(super) k3s: Given<AbsolutePath>,
    pub(super) ccm: Given<AbsolutePath>,
}

/// One line per error: the parser's own drawing of the file does not fit into a log.
pub(super) fn read(text: &str, path: &Path) -> Result<File, ConfigError> {
    toml::from_str(text).map_err(|error| ConfigError::Invalid {
        path: path.to_owned(),
        line: error.span().map_or(1, |span| line_of(text, span.start)),
        reason: one_line(error.message().replace('\n', ", ")),
    })
}
