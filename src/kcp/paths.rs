//! Where the files of one slot lie. Creates nothing.

use crate::layout::Layout;
use berth_actors::identity::SlotName;
use std::path::PathBuf;

/// `<state>/kcp/slot-a/...`
#[derive(Debug, Clone)]
pub(crate) struct SlotPaths {
    pub dir: PathBuf,
    /// kcp's own `--root-directory`.
    pub root: PathBuf,
    /// Where the root of a first start that was cut short is put.
    pub interrupted_root: PathBuf,
    pub log_dir: PathBuf,
    pub log: PathBuf,
    pub audit_dir: PathBuf,
    pub audit_log: PathBuf,
    pub audit_policy: PathBuf,
    /// The leader identity of the process that runs here.
    pub election: PathBuf,
}

impl SlotPaths {
    pub(crate) fn new(layout: &Layout, slot: SlotName) -> Self {
        let dir = layout.kcp_chain(slot.chain());
        let log_dir = dir.join("log");
        let audit_dir = dir.join("audit");
        Self {
            root: dir.join("root"),
            interrupted_root: dir.join("root.interrupted"),
            log: log_dir.join("kcp.log"),
            log_dir,
            audit_log: audit_dir.join("audit.log"),
            audit_policy: audit_dir.join("policy.yaml"),
            audit_dir,
            election: dir.join("election.json"),
            dir,
        }
    }
}
