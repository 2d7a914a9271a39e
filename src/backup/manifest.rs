//! What a backup says of itself. The header comes first, so that a foreign or newer file is refused before it is read; the
//! manifest comes last, because only then every digest is known.

use crate::guard::Record;
use crate::one_line::one_line;
use berth_actors::host::Distribution;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Component, Path};

/// Raised whenever an older Berth could not restore what a newer one writes.
pub const FORMAT: u32 = 1;
/// The first member.
pub const HEADER: &str = "berth-backup.json";
/// The last member.
pub const MANIFEST: &str = "manifest.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    pub format: u32,
    /// The version of the Berth that made it.
    pub berth: String,
    pub cluster: String,
    /// RFC 3339.
    pub made: String,
    /// About how much it unpacks to.
    pub bytes: u64,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    pub size: u64,
    pub sha256: String,
}

/// Holds no secret; the members do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    pub format: u32,
    pub berth: String,
    pub cluster: String,
    /// RFC 3339.
    pub made: String,
    pub distribution: Distribution,
    /// The server's own words. A database is restored under the same major version only.
    pub postgres: String,
    /// What ran it. The directories of an asset store carry digests.
    pub programs: BTreeMap<String, String>,
    /// The row in its database.
    pub identity: Record,
    pub members: BTreeMap<String, Member>,
}

/// Why a header or manifest is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    #[error("{0}")]
    Torn(String),
    #[error("{0}")]
    Newer(u32),
}

impl Header {
    pub fn parse(bytes: &[u8]) -> Result<Self, Unreadable> {
        strict_once_known(bytes)
    }
}

impl Manifest {
    pub fn parse(bytes: &[u8]) -> Result<Self, Unreadable> {
        strict_once_known(bytes)
    }
}

/// The format decides whether the rest can be judged at all.
fn strict_once_known<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, Unreadable> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let torn = |error: serde_json::Error| Unreadable::Torn(one_line(error));
    let Format { format } = serde_json::from_slice(bytes).map_err(torn)?;
    if format > FORMAT {
        return Err(Unreadable::Newer(format));
    }
    serde_json::from_slice(bytes).map_err(torn)
}

/// Whether a member may have this name: it stays below the directory it is unpacked in, and is none of ours.
pub fn is_inside(path: &Path) -> bool {
    let plain =
        |part: Component<'_>| matches!(part, Component::Normal(name) if name.to_str().is_some_and(is_clean));
    path.components().next().is_some() && path.components().all(plain) && path != Path::new(HEADER)
}

fn is_clean(name: &str) -> bool {
    !name.starts_with(crate::files::ASIDE) && !name.contains(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_newer_format_is_told_from_a_torn_file_whatever_else_it_says() {
        let parse = |text: &str| Header::parse(text.as_bytes());
        assert_eq!(parse(r#"{"format":2,"sealed":true}"#), Err(Unreadable::Newer(2)));
        for torn in ["", "{", "{}", r#"{"format":"1"}"#, r#"{"format":1}"#, "[]"] {
            assert!(matches!(parse(torn), Err(Unreadable::Torn(_))), "{torn}");
        }
    }

    #[test]
    fn no_member_leaves_its_directory() {
        for good in ["pg/base/1/1259", "identity.json", "pki/sa.key"] {
            assert!(is_inside(Path::new(good)), "{good}");
        }
        for bad in
            ["", "/etc/passwd", "../x", "pki/../../x", "a\nb", "pki/.berth-x", "berth-backup.json", "."]
        {
            assert!(!is_inside(Path::new(bad)), "{bad}");
        }
    }
}
