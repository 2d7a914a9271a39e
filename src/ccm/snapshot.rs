//! `nodes.json`: the instances a tenant has, as the daemon knows them. Written by the daemon, read by the controller.
//!
//! The controller reads it anew for each decision. A file that cannot be understood is an error, never an empty one.

use super::node_name::NodeName;
use crate::files::{FileError, read_optional, write_atomic};
use crate::one_line::one_line;
use berth_actors::spec::User;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// One instance. Fields of a later version are ignored: they cannot make it another node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    pub name: NodeName,
}

/// The instances by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<NodeName, Instance>);

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the snapshot {path} cannot be read as a list of instances: {reason}")]
    NotASnapshot { path: PathBuf, reason: String },
    #[error("the snapshot {path} names {name} twice")]
    Twice { path: PathBuf, name: NodeName },
    #[error("the snapshot {path} names {found} instances, {most} are allowed")]
    TooMany { path: PathBuf, found: usize, most: usize },
}

/// The daemon is the only writer, but its API serves several requests at once: read, change and write are one step.
static EDIT: Mutex<()> = Mutex::new(());

impl Snapshot {
    /// An absent file, an empty one and `[]` are the same answer: nothing is known. Blocking.
    pub fn read(path: &Path) -> Result<Self, SnapshotError> {
        Self::parse(&read_optional(path)?.unwrap_or_default(), path)
    }

    /// The snapshot in a file that is called `path`.
    pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Self, SnapshotError> {
        if bytes.trim_ascii().is_empty() {
            return Ok(Self::default());
        }
        let instances: Vec<Instance> = serde_json::from_slice(bytes)
            .map_err(|e| SnapshotError::NotASnapshot { path: path.to_owned(), reason: one_line(e) })?;
        let mut snapshot = Self::default();
        for instance in instances {
            let name = instance.name.clone();
            if snapshot.0.insert(name.clone(), instance).is_some() {
                return Err(SnapshotError::Twice { path: path.to_owned(), name });
            }
        }
        Ok(snapshot)
    }

    /// Writes `[]` where there is no file yet. Blocking.
    pub fn ensure(path: &Path, owner: Option<User>) -> Result<(), SnapshotError> {
        let _edit = EDIT.lock().unwrap_or_else(PoisonError::into_inner);
        if read_optional(path)?.is_none() {
            Self::default().write(path, owner)?;
        }
        Ok(())
    }

    /// False when it was there already. Blocking.
    pub fn add(path: &Path, name: &NodeName, owner: Option<User>) -> Result<bool, SnapshotError> {
        let _edit = EDIT.lock().unwrap_or_else(PoisonError::into_inner);
        let mut snapshot = Self::read(path)?;
        let new = snapshot.0.insert(name.clone(), Instance { name: name.clone() }).is_none();
        if new {
            snapshot.write(path, owner)?;
        }
        Ok(new)
    }

    /// False when it was not there. Blocking.
    pub fn remove(path: &Path, name: &NodeName, owner: Option<User>) -> Result<bool, SnapshotError> {
        let _edit = EDIT.lock().unwrap_or_else(PoisonError::into_inner);
        let mut snapshot = Self::read(path)?;
        let known = snapshot.0.remove(name).is_some();
        if known {
            snapshot.write(path, owner)?;
        }
        Ok(known)
    }

    pub fn instances(&self) -> impl Iterator<Item = &Instance> {
        self.0.values()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the Node of this name is ours. A name that no instance can have is not.
    pub fn knows(&self, node: &str) -> bool {
        node.parse::<NodeName>().is_ok_and(|name| self.0.contains_key(&name))
    }

    fn write(&self, path: &Path, owner: Option<User>) -> Result<(), SnapshotError> {
        Ok(write_atomic(path, &self.written(path)?, owner)?)
    }

    pub(super) fn written(&self, path: &Path) -> Result<Vec<u8>, SnapshotError> {
        let instances: Vec<&Instance> = self.instances().collect();
        let mut text = serde_json::to_vec_pretty(&instances)
            .map_err(|e| SnapshotError::NotASnapshot { path: path.to_owned(), reason: e.to_string() })?;
        text.push(b'\n');
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> NodeName {
        text.parse().unwrap()
    }

    #[test]
    fn absent_empty_and_zero_nodes_are_the_same_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nodes.json");
        assert_eq!(Snapshot::read(&path).unwrap(), Snapshot::default());
        for nothing in ["", " \n", "[]", "[]\n"] {
            write_atomic(&path, nothing.as_bytes(), None).unwrap();
            let snapshot = Snapshot::read(&path).unwrap();
            assert!(snapshot.is_empty() && !snapshot.knows("n1"));
        }
    }

    #[test]
    fn what_cannot_be_understood_is_an_error_that_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nodes.json");
        for torn in [
            "[",
            "{}",
            "null",
            "[{\"name\":\"n1\"}",
            "[{\"name\":\"n1\"},{\"name\":\"N2\"}]",
            "[{}]",
            "[\"n1\"]",
            "[{\"name\":\"n1\"},{\"name\":\"n1\"}]",
        ] {
            write_atomic(&path, torn.as_bytes(), None).unwrap();
            let error = Snapshot::read(&path).expect_err(torn).to_string();
            assert!(error.contains("nodes.json"), "{error}");
            assert!(Snapshot::add(&path, &name("n9"), None).is_err(), "{torn} was written over");
        }
    }

    #[test]
    fn nodes_are_added_and_removed_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nodes.json");
        Snapshot::ensure(&path, None).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "[]\n");
        assert!(Snapshot::add(&path, &name("n2"), None).unwrap());
        assert!(Snapshot::add(&path, &name("n1"), None).unwrap());
        assert!(!Snapshot::add(&path, &name("n1"), None).unwrap());
        Snapshot::ensure(&path, None).unwrap();
        let names: Vec<String> =
            Snapshot::read(&path).unwrap().instances().map(|i| i.name.to_string()).collect();
        assert_eq!(names, ["n1", "n2"]);
        assert!(Snapshot::remove(&path, &name("n1"), None).unwrap());
        assert!(!Snapshot::remove(&path, &name("n1"), None).unwrap());
        assert!(Snapshot::read(&path).unwrap().knows("n2"));
    }
}
