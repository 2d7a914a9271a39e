//! A node's name that was checked: the writer of the snapshot and the controller cannot mean different ones (M6).

use crate::names::{self, BadName};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A name that the API server would accept for a Node, so that a snapshot entry can match one byte by byte.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

impl NodeName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeName {
    type Err = BadName;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        names::node(name).map(Self)
    }
}

impl TryFrom<String> for NodeName {
    type Error = BadName;

    fn try_from(name: String) -> Result<Self, Self::Error> {
        name.parse()
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
