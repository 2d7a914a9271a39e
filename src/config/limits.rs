//! `[limits.WHOM]`: what a component may take of the host at most.
//!
//! `WHOM` is `default`, a component of every chain, or one chain's component. For each key the narrowest section that has it
//! decides.

use super::ConfigError;
use super::setting::{Origin, Setting, line_of};
use super::values::{CoreSize, CpuShare, MemorySize};
use crate::names;
use crate::policy::Supervised;
use crate::process::{ComponentLimits, Limits};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use toml::Spanned;

/// The section that is there in any case.
pub(super) const DEFAULT: &str = "default";
const NONE: &str =
    "none: what a component needs grows with its cluster, and a limit that is too tight kills what works";

const OPEN_FILES: &str = "none: as many as the daemon itself";
const CORE_SIZE: &str = "[limits.default] has 0: a core dump holds every key of its process";

/// The section as it is written.
pub(super) type Given = BTreeMap<Spanned<String>, GivenLimits>;

type Key<T> = Option<Spanned<T>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GivenLimits {
    memory: Key<MemorySize>,
    processes: Key<NonZeroU32>,
    cpu: Key<CpuShare>,
    open_files: Key<NonZeroU32>,
    core_size: Key<CoreSize>,
}

/// The limits of one section, each with its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsOf {
    pub whom: String,
    pub memory: Setting<Option<MemorySize>>,
    pub processes: Setting<Option<NonZeroU32>>,
    pub cpu: Setting<Option<CpuShare>>,
    pub open_files: Setting<Option<NonZeroU32>>,
    pub core_size: Setting<Option<CoreSize>>,
}

/// Every section, that of all components first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitsConfig(pub Vec<LimitsOf>);

impl LimitsConfig {
    /// As the process host takes them.
    pub fn of_components(&self) -> ComponentLimits {
        let limits = |of: &LimitsOf| Limits {
            memory: of.memory.value.map(|size| size.0),
            processes: of.processes.value.map(NonZeroU32::get),
            cpu_percent: of.cpu.value.map(|share| share.0),
            open_files: of.open_files.value.map(|count| u64::from(count.get())),
            core_size: of.core_size.value.map(|size| size.0),
        };
        ComponentLimits::new(self.0.iter().map(|of| (of.whom.clone(), limits(of))))
    }
}

pub(super) fn read(given: Given, origin: Origin<'_>) -> Result<LimitsConfig, ConfigError> {
    let mut sections = vec![of(DEFAULT.to_owned(), GivenLimits::default(), origin)];
    for (whom, limits) in given {
        check(whom.get_ref()).map_err(|reason| ConfigError::Invalid {
            path: origin.path.to_owned(),
            line: line_of(origin.text, whom.span().start),
            reason,
        })?;
        let section = of(whom.into_inner(), limits, origin);
        if section.whom == DEFAULT { sections[0] = section } else { sections.push(section) }
    }
    Ok(LimitsConfig(sections))
}

fn of(whom: String, given: GivenLimits, origin: Origin<'_>) -> LimitsOf {
    let mut core_size = origin.optional(given.core_size, CORE_SIZE);
    // The narrower sections say nothing unless they are written.
    if whom == DEFAULT && core_size.value.is_none() {
        core_size.value = Some(CoreSize(0));
    }
    LimitsOf {
        whom,
        memory: origin.optional(given.memory, NONE),
        processes: origin.optional(given.processes, NONE),
        cpu: origin.optional(given.cpu, NONE),
        open_files: origin.optional(given.open_files, OPEN_FILES),
        core_size,
    }
}

fn check(whom: &str) -> Result<(), String> {
    let (chain, component) = match whom.split_once('/') {
        Some((chain, component)) => (Some(chain), component),
        None => (None, whom),
    };
    let is_known = Supervised::ALL.iter().any(|of| of.component() == component);
    if (whom == DEFAULT) || (is_known && chain.is_none_or(|chain| names::chain(chain).is_ok())) {
        return Ok(());
    }
    Err(format!(
        "unknown limits `{whom}`: write [limits.{DEFAULT}], [limits.COMPONENT] or [limits.\"CHAIN/COMPONENT\"], \
         with a component such as kube-apiserver or postgres and a chain such as a cluster's name, slot-a or kcp-store"
    ))
}
