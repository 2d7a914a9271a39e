//! What the program is told, by environment only: there is nothing secret in it and nothing on argv.

use crate::names;
use crate::one_line::one_line;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const TENANT_KUBECONFIG: &str = "SOCIALWEB_CLOUDCONTROLLERMANAGER_TENANT_KUBECONFIG";
pub(super) const CLUSTER: &str = "SOCIALWEB_CLOUDCONTROLLERMANAGER_CLUSTER";
pub(super) const INSTANCES_FILE: &str = "SOCIALWEB_CLOUDCONTROLLERMANAGER_INSTANCES_FILE";
const MAX_NODES: &str = "SOCIALWEB_CLOUDCONTROLLERMANAGER_MAX_NODES";
const PODS_PER_NODE: &str = "SOCIALWEB_CLOUDCONTROLLERMANAGER_PODS_PER_NODE";
const RESYNC: &str = "SOCIALWEB_CLOUDCONTROLLERMANAGER_RESYNC";

/// The size Kubernetes is tested to; a snapshot beyond it is a mistake of whoever wrote it.
const DEFAULT_MAX_NODES: usize = 5_000;
/// The kubelet's own default.
const DEFAULT_PODS_PER_NODE: u32 = 110;
/// Watches deliver every change at once; this only heals what a lost event would leave. Other cloud controllers use the same.
const DEFAULT_RESYNC: Duration = Duration::from_mins(5);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Config {
    pub(super) kubeconfig: PathBuf,
    pub(super) cluster: String,
    pub(super) instances_file: PathBuf,
    /// A snapshot with more instances is refused as a whole.
    pub(super) max_nodes: usize,
    /// Checked and logged. A Node's capacity is its kubelet's to report, in a status this credential may not write.
    pub(super) pods_per_node: u32,
    pub(super) resync: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ConfigError {
    #[error("{0} is not set")]
    Missing(&'static str),
    #[error("{name}={value}: {expected}")]
    Invalid { name: &'static str, value: String, expected: &'static str },
}

impl Config {
    pub(super) fn from_env(get: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let set = |name| get(name).filter(|value| !value.is_empty());
        let required = |name| set(name).ok_or(ConfigError::Missing(name));
        let path = |name| match required(name).map(PathBuf::from)? {
            path if path.is_absolute() => Ok(path),
            path => Err(invalid(name, &path.display().to_string(), "an absolute path is needed")),
        };
        let text = |value: OsString| value.to_string_lossy().into_owned();

        let cluster = text(required(CLUSTER)?);
        // The label value and the providerID are made of it.
        if !names::is_label(&cluster) {
            return Err(invalid(CLUSTER, &cluster, "an RFC 1123 label is needed"));
        }
        let max_nodes = positive(MAX_NODES, set(MAX_NODES).map(text))?;
        let pods_per_node = positive(PODS_PER_NODE, set(PODS_PER_NODE).map(text))?;
        let resync = match set(RESYNC).map(text) {
            None => DEFAULT_RESYNC,
            Some(value) => duration(&value)
                .ok_or_else(|| invalid(RESYNC, &value, "a time such as 30s, 5m or 1h is needed"))?,
        };
        Ok(Self {
            kubeconfig: path(TENANT_KUBECONFIG)?,
            cluster,
            instances_file: path(INSTANCES_FILE)?,
            max_nodes: max_nodes.map_or(DEFAULT_MAX_NODES, |n| n as usize),
            pods_per_node: pods_per_node.unwrap_or(DEFAULT_PODS_PER_NODE),
            resync,
        })
    }
}

fn invalid(name: &'static str, value: &str, expected: &'static str) -> ConfigError {
    ConfigError::Invalid { name, value: one_line(value), expected }
}

fn positive(name: &'static str, value: Option<String>) -> Result<Option<u32>, ConfigError> {
    let Some(value) = value else { return Ok(None) };
    match value.parse() {
        Ok(number) if number > 0 => Ok(Some(number)),
        _ => Err(invalid(name, &value, "a whole number above 0 is needed")),
    }
}

fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok().filter(|n| *n > 0)?;
    let seconds = match &text[digits.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return None,
    };
    Some(Duration::from_secs(number.checked_mul(seconds)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn config(changes: &[(&'static str, &str)]) -> Result<Config, ConfigError> {
        let mut env = HashMap::from([
            (TENANT_KUBECONFIG, "/data/ccm.kubeconfig"),
            (CLUSTER, "demo"),
            (INSTANCES_FILE, "/data/nodes.json"),
        ]);
        env.extend(changes.iter().copied());
        Config::from_env(|name| env.get(name).map(OsString::from))
    }

    #[test]
    fn three_variables_are_enough() {
        let config = config(&[]).unwrap();
        assert_eq!((config.cluster.as_str(), config.resync), ("demo", DEFAULT_RESYNC));
        assert_eq!((config.max_nodes, config.pods_per_node), (5_000, 110));
    }

    #[test]
    fn optional_ones_are_taken() {
        let config = config(&[(MAX_NODES, "10"), (PODS_PER_NODE, "30"), (RESYNC, "90s")]).unwrap();
        assert_eq!((config.max_nodes, config.pods_per_node), (10, 30));
        assert_eq!(config.resync, Duration::from_secs(90));
    }

    #[test]
    fn a_bad_value_is_named_with_its_variable() {
        for (name, value) in [
            (TENANT_KUBECONFIG, ""),
            (TENANT_KUBECONFIG, "ccm.kubeconfig"),
            (CLUSTER, "Demo"),
            (CLUSTER, "a.b"),
            (INSTANCES_FILE, ""),
            (MAX_NODES, "0"),
            (PODS_PER_NODE, "many"),
            (RESYNC, "0s"),
            (RESYNC, "5 days"),
            (RESYNC, "s"),
        ] {
            let error = config(&[(name, value)]).expect_err(value).to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}
