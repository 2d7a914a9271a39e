//! What a node may be called. One rule for the writer of the snapshot, the command line and the controller (M6).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Kubernetes takes an RFC 1123 subdomain of this many bytes as a Node's name.
const LONGEST: usize = 253;
const LONGEST_LABEL: usize = 63;

/// A name that the API server would accept for a Node, so that a snapshot entry can match one byte by byte.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{name:?} is not a node name: use lower-case letters, digits, '-' and '.', at most {LONGEST} bytes, each part beginning and ending with a letter or digit"
)]
pub struct InvalidNodeName {
    name: String,
}

impl NodeName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeName {
    type Err = InvalidNodeName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::try_from(name.to_owned())
    }
}

impl TryFrom<String> for NodeName {
    type Error = InvalidNodeName;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        let valid = name.len() <= LONGEST && name.split('.').all(is_label);
        if valid { Ok(Self(name)) } else { Err(InvalidNodeName { name }) }
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_label(part: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = part.as_bytes();
    bytes.len() <= LONGEST_LABEL
        && bytes.first().is_some_and(|b| inner(*b))
        && bytes.last().is_some_and(|b| inner(*b))
        && bytes.iter().all(|b| inner(*b) || *b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_api_server_accepts_pass_and_no_others() {
        let longest = format!("{0}.{0}.{0}.{1}", "a".repeat(63), "b".repeat(61));
        for good in ["n1", "node-1.rack-2.example", "0", longest.as_str()] {
            assert_eq!(good.parse::<NodeName>().map(String::from), Ok(good.to_owned()));
        }
        let too_long = format!("{longest}x");
        let long_part = "a".repeat(64);
        for bad in ["", ".", "N1", "-n", "n-", "a..b", "a.", "a b", "a/b", "ü", "a_b", &too_long, &long_part]
        {
            assert!(bad.parse::<NodeName>().is_err(), "{bad:?}");
        }
    }
}
