//! The two environment variables by which Berth's processes are found again, whoever became their parent.
//!
//! The spawner sets them; reaping and the survivor search read them from `/proc/<pid>/environ`.

use crate::layout::Layout;
use berth_actors::identity::ComponentId;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// Unique for each spawn: tells one life of a component from the next.
pub(super) const TOKEN: &str = "BERTH_RUN_TOKEN";
/// `<state hash>/<chain>/<component>`: tells the daemons of one host apart.
pub(super) const COMPONENT: &str = "BERTH_COMPONENT";

/// A short name for one state directory, the same for every daemon that ever runs on it.
#[derive(Debug, Clone)]
pub(super) struct StateMark {
    state: PathBuf,
    hash: String,
}

impl StateMark {
    /// The directory should exist: only then do two spellings of its path give one mark.
    pub(super) fn of(layout: &Layout) -> Self {
        let state = layout.state().canonicalize().unwrap_or_else(|_| layout.state().to_owned());
        let digest = hex::encode(Sha256::digest(state.as_os_str().as_encoded_bytes()));
        Self { state, hash: digest[..16].to_owned() }
    }

    pub(super) fn state(&self) -> &Path {
        &self.state
    }

    pub(super) fn as_str(&self) -> &str {
        &self.hash
    }

    /// Whether a path, links resolved, is in the state directory.
    pub(super) fn contains(&self, path: &Path) -> bool {
        path.starts_with(&self.state)
    }

    pub(super) fn component(&self, component: &ComponentId) -> String {
        format!("{}/{component}", self.hash)
    }

    /// The component a process was marked with, if it was marked for this state directory.
    pub(super) fn parse(&self, value: &str) -> Option<ComponentId> {
        let (chain, component) = value.strip_prefix(&self.hash)?.strip_prefix('/')?.split_once('/')?;
        Some(ComponentId::new(chain, component))
    }
}

pub(super) fn new_token() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_read_back_only_by_its_own_state_directory() {
        let here = StateMark::of(&Layout::new("/berth-a".into(), None));
        let there = StateMark::of(&Layout::new("/berth-b".into(), None));
        let kine = ComponentId::new("demo", "kine");
        assert_eq!(here.parse(&here.component(&kine)), Some(kine.clone()));
        assert_eq!(there.parse(&here.component(&kine)), None);
        assert_eq!(here.parse("anything else"), None);
    }
}
