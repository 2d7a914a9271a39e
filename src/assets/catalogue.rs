//! What each component is and where it comes from: `deploy/components.toml` and its pin files, embedded so that a daemon
//! provisions itself from anywhere, and over it the operator's own (`super::operators`). Provisioning asks; nothing here
//! touches the disk or the network.

use crate::one_line::one_line;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::PathBuf;

const CATALOGUE: &str = include_str!("../../deploy/components.toml");

/// Pin files by the name the catalogue uses.
const WHEEL_PINS: &[(&str, &str)] =
    &[("python/requirements.txt", include_str!("../../deploy/python/requirements.txt"))];
const GO_PINS: &[(&str, GoPins)] = &[
    (
        "go/kine",
        GoPins {
            module: include_str!("../../deploy/go/kine/go.mod"),
            sums: include_str!("../../deploy/go/kine/go.sum"),
        },
    ),
    (
        "go/kubernetes",
        GoPins {
            module: include_str!("../../deploy/go/kubernetes/go.mod"),
            sums: include_str!("../../deploy/go/kubernetes/go.sum"),
        },
    ),
];

/// Raised when the same pin begins to unpack or build into something else: it is part of every key.
const RECIPE: &str = "1";

/// Names `go.mod` and `go.sum` of one build.
#[derive(Debug, Clone, Copy)]
pub struct GoPins {
    pub module: &'static str,
    pub sums: &'static str,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Entry {
    pub version: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub licence: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    pub source: Source,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "kind", deny_unknown_fields, rename_all = "kebab-case", rename_all_fields = "kebab-case")]
pub enum Source {
    /// A wheel from the Python package index, of which some members are unpacked.
    Wheel {
        package: String,
        package_version: String,
        pins: String,
        /// Prefix inside the wheel to the prefix it gets in the store; everything else stays out.
        members: BTreeMap<String, String>,
        program: String,
    },
    /// A Go program, built here.
    GoTool { module: String, import_path: String, pins: String, program: String },
    /// No registry serves it: an operator's file.
    Operator { flag: String },
    /// A file of this host.
    File {
        path: PathBuf,
        #[serde(flatten)]
        content: Content,
    },
    /// What a server of the operator's choice has.
    Https {
        url: String,
        /// The authority its certificate is of (PEM); without it, those the host trusts.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ca: Option<PathBuf>,
        #[serde(flatten)]
        content: Content,
    },
}

/// What a pinned file holds: the program itself, or an archive (`.tar`, `.tar.gz`, `.tar.zst`, `.zip`) of which some members are
/// unpacked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Content {
    /// Of the file as it comes, before anything is unpacked.
    pub sha256: String,
    /// Member to the path it gets in the store; names that end with `/` are prefixes. Empty: the file is the program.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub members: BTreeMap<String, String>,
    /// The program's path in the store, where it is not called after the component.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
}

impl Content {
    /// `bin/kcp` of an archive, or the file itself.
    pub fn of_a_program(component: &str, sha256: String, member: Option<String>) -> Self {
        let members = member.map(|member| (member, program_of(component).to_owned())).into_iter().collect();
        Self { sha256, members, program: None }
    }

    pub(super) fn program(&self, component: &str) -> String {
        self.program.clone().unwrap_or_else(|| program_of(component).to_owned())
    }

    pub(super) fn key(&self, component: &str, version: &str) -> String {
        let program = self.program(component);
        let members = self.members.iter().flat_map(|(from, to)| [from.as_str(), to.as_str()]);
        let parts: Vec<_> =
            ["a file", component, version, &self.sha256, &program].into_iter().chain(members).collect();
        key(&parts)
    }
}

/// What a component's program is called in the store.
pub(super) fn program_of(component: &str) -> &str {
    match component {
        "openbao" => "bao",
        "ccm" => super::CLOUD_CONTROLLER_MANAGER,
        other => other,
    }
}

/// Names what an operator brought by hand.
pub(super) fn key_by_hand(component: &str, version: &str) -> String {
    key(&["by hand", component, version])
}

impl Source {
    /// Why it cannot be used.
    pub(super) fn is_sound(&self) -> Result<(), String> {
        let content = match self {
            Self::Https { url, content, .. } => {
                let host = url.strip_prefix("https://").ok_or("its url does not begin with https://")?;
                let authority = host.split(['/', '?', '#']).next().unwrap_or_default();
                if authority.is_empty() {
                    return Err("its url names no host".to_owned());
                }
                if authority.contains('@') {
                    return Err("its url has a password in it, which would be logged".to_owned());
                }
                content
            }
            Self::File { path, content } => {
                if !path.is_absolute() {
                    return Err("its path is not absolute".to_owned());
                }
                content
            }
            Self::Wheel { .. } | Self::GoTool { .. } | Self::Operator { .. } => return Ok(()),
        };
        is_sha256(&content.sha256).then_some(()).ok_or("its sha256 is not 64 hexadecimal digits".to_owned())
    }
}

/// As it is printed everywhere: lower case.
pub fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// The embedded catalogue is wrong: a fault of this build, not of the host.
#[derive(Debug, thiserror::Error)]
#[error("the built-in component catalogue is broken: {0}")]
pub struct CatalogueError(String);

impl CatalogueError {
    pub(super) fn new(reason: String) -> Self {
        Self(reason)
    }
}

#[derive(Debug, Clone)]
pub struct Catalogue {
    entries: BTreeMap<String, Entry>,
}

impl Catalogue {
    pub fn embedded() -> Result<Self, CatalogueError> {
        Self::parse(CATALOGUE)
    }

    pub(super) fn parse(text: &str) -> Result<Self, CatalogueError> {
        parse(text).map(|entries| Self { entries }).map_err(CatalogueError)
    }

    /// What `entries` name goes over what was there.
    pub(super) fn overlaid(mut self, entries: BTreeMap<String, Entry>) -> Self {
        self.entries.extend(entries);
        self
    }

    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(name, entry)| (name.as_str(), entry))
    }

    pub fn entry(&self, component: &str) -> Result<&Entry, CatalogueError> {
        self.entries.get(component).ok_or_else(|| CatalogueError(format!("it does not name {component}")))
    }
}

pub(super) fn parse(text: &str) -> Result<BTreeMap<String, Entry>, String> {
    let entries: BTreeMap<String, Entry> =
        toml::from_str(text).map_err(|error: toml::de::Error| one_line(error.message()))?;
    for (name, entry) in &entries {
        entry.source.is_sound().map_err(|reason| one_line(format!("{name}: {reason}")))?;
    }
    Ok(entries)
}

/// The pin of a wheel: its line in the requirements file, and the digests that line allows.
pub fn wheel_pin(
    pins: &str,
    package: &str,
    version: &str,
) -> Result<(&'static str, Vec<&'static str>), CatalogueError> {
    let wanted = format!("{package}=={version}");
    let line = WHEEL_PINS
        .iter()
        .filter(|(name, _)| *name == pins)
        .flat_map(|(_, text)| text.lines())
        .find(|line| line.split_whitespace().next() == Some(&wanted))
        .ok_or_else(|| CatalogueError(format!("{pins} does not pin {wanted}")))?;
    let digests: Vec<_> =
        line.split_whitespace().filter_map(|word| word.strip_prefix("--hash=sha256:")).collect();
    if digests.is_empty() {
        return Err(CatalogueError(format!("{pins} has no sha256 for {wanted}")));
    }
    Ok((line, digests))
}

pub fn go_pins(pins: &str) -> Result<GoPins, CatalogueError> {
    GO_PINS
        .iter()
        .find(|(name, _)| *name == pins)
        .map(|(_, pins)| *pins)
        .ok_or_else(|| CatalogueError(format!("there is no {pins}/go.mod")))
}

/// Names one pinned recipe. The store finds an installed asset by it without asking pip or go: a Go program's digest is
/// known only once it is built, and differs between toolchains.
pub fn key(parts: &[&str]) -> String {
    let mut hash = Sha256::new();
    for part in [RECIPE, std::env::consts::ARCH].iter().chain(parts) {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex::encode(hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_embedded_component_has_its_pin_at_the_same_version() {
        for (name, entry) in Catalogue::embedded().unwrap().entries() {
            assert!(!entry.licence.is_empty(), "{name}");
            match &entry.source {
                Source::Wheel { package, package_version, pins, .. } => {
                    let (_, digests) = wheel_pin(pins, package, package_version).unwrap();
                    assert!(digests.iter().all(|digest| digest.len() == 64), "{name}: {digests:?}");
                }
                Source::GoTool { module, import_path, pins, program } => {
                    assert_eq!(import_path.rsplit('/').next(), Some(program.as_str()), "go names it so");
                    let pins = go_pins(pins).unwrap();
                    let required = format!("{module} {}", entry.version);
                    let summed = format!("{module} {} h1:", entry.version);
                    assert!(pins.module.contains(&required), "{name}: {required}");
                    assert!(pins.module.contains(import_path.as_str()), "{name}: no tool line");
                    assert!(pins.sums.contains(&summed), "{name}: {summed}");
                }
                Source::Operator { flag } => assert!(flag.starts_with("--"), "{name}"),
                Source::File { .. } | Source::Https { .. } => panic!("{name}: only an operator names files"),
            }
        }
    }

    #[test]
    fn a_key_tells_apart_what_moves_between_its_parts() {
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_eq!(key(&["ab", "c"]), key(&["ab", "c"]));
    }
}
