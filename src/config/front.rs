//! `[front]`: where clients of kcp come, and how many at one time. The caps are read together, because each bounds the next.

use super::setting::{Origin, Setting, Source};
use super::values::{Connections, Span};
use super::{ConfigError, defaults, file};
use crate::front;
use std::net::SocketAddr;
use toml::Spanned;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrontConfig {
    pub listen: Setting<SocketAddr>,
    pub drain_limit: Setting<Span>,
    pub max_connections: Setting<usize>,
    pub max_connections_per_peer: Setting<usize>,
    pub max_parked: Setting<usize>,
}

impl FrontConfig {
    /// What the front is started with.
    pub fn caps(&self) -> front::FrontConfig {
        front::FrontConfig {
            max_connections: *self.max_connections,
            max_per_peer: *self.max_connections_per_peer,
            max_parked: *self.max_parked,
            ..front::FrontConfig::default()
        }
    }
}

pub(super) fn read(file: file::Front, origin: Origin<'_>) -> Result<FrontConfig, ConfigError> {
    let max_connections = origin.setting(file.max_connections, defaults::MAX_CONNECTIONS);
    let part = |name, given: Option<Spanned<Connections>>, default| {
        let part: Setting<usize> = origin.setting(given, default);
        match &part.source {
            Source::File { path, line } if *part > *max_connections => Err(ConfigError::Invalid {
                path: path.clone(),
                line: *line,
                reason: format!(
                    "{name} {} is more than max_connections {}: lower it, or raise max_connections",
                    *part, *max_connections
                ),
            }),
            _ => Ok(part),
        }
    };
    Ok(FrontConfig {
        listen: origin.setting(file.listen, defaults::FRONT_LISTEN),
        drain_limit: origin.setting(file.drain_limit, defaults::DRAIN_LIMIT),
        max_connections_per_peer: part(
            "max_connections_per_peer",
            file.max_connections_per_peer,
            defaults::max_connections_per_peer(*max_connections),
        )?,
        max_parked: part("max_parked", file.max_parked, defaults::max_parked(*max_connections))?,
        max_connections,
    })
}
