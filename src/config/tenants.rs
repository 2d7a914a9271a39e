//! `[tenants]`: what a root daemon keeps clusters apart with, and how much disk one may take.

use super::ConfigError;
use super::defaults;
use super::setting::{Origin, Setting, line_of};
use super::values::{DiskSize, FirstUid};
use serde::Deserialize;
use std::ops::Range;
use toml::Spanned;

type Key<T> = Option<Spanned<T>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Given {
    first_uid: Key<FirstUid>,
    uids: Key<u32>,
    disk: Key<DiskSize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantsConfig {
    /// Each cluster of a root daemon is leased one, from here on.
    pub first_uid: Setting<u32>,
    /// How many there are; 0: all clusters share the account of `user`.
    pub uids: Setting<u32>,
    /// Beyond it a cluster is remarked on. `None`: never.
    pub disk: Setting<Option<DiskSize>>,
}

impl TenantsConfig {
    pub fn range(&self) -> Range<u32> {
        *self.first_uid..self.first_uid.saturating_add(*self.uids)
    }
}

pub(super) fn read(given: Given, origin: Origin<'_>) -> Result<TenantsConfig, ConfigError> {
    let place =
        given.uids.as_ref().map(Spanned::span).or_else(|| given.first_uid.as_ref().map(Spanned::span));
    let config = TenantsConfig {
        first_uid: origin.setting(given.first_uid, defaults::FIRST_UID),
        uids: origin.setting(given.uids, defaults::UIDS),
        disk: origin.optional(given.disk, defaults::TENANT_DISK),
    };
    // The last number of all means "nobody" to the kernel.
    if config.first_uid.checked_add(*config.uids).is_none() {
        return Err(ConfigError::Invalid {
            path: origin.path.to_owned(),
            line: place.map_or(1, |place| line_of(origin.text, place.start)),
            reason: format!("{} uids from {} on end past the last one", *config.uids, *config.first_uid),
        });
    }
    Ok(config)
}
