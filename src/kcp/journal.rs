//! `<state>/kcp/handover.json`: how far the last handover has come, so that a daemon killed at any point resumes it.
//!
//! One record, replaced atomically and synced before a phase begins. A file that is not one is refused by name: guessing
//! which slot is active could put the front on a dead one.

use crate::files;
use crate::layout::Layout;
use crate::off_thread::off_thread;
use crate::one_line::one_line;
use async_trait::async_trait;
use berth_actors::handover::Record;
use berth_actors::host::Journal;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub struct HandoverFile {
    path: PathBuf,
}

impl HandoverFile {
    pub fn new(layout: &Layout) -> Self {
        Self { path: layout.kcp().join("handover.json") }
    }
}

#[async_trait]
impl Journal for HandoverFile {
    async fn write(&self, record: &Record) -> Result<(), String> {
        let bytes = written(record)?;
        let path = self.path.clone();
        off_thread(move || files::write_atomic(&path, &bytes, None)).await.map_err(|error| error.to_string())
    }

    async fn read(&self) -> Result<Option<Record>, String> {
        let path = self.path.clone();
        let bytes =
            off_thread(move || files::read_optional(&path)).await.map_err(|error| error.to_string())?;
        bytes.map(|bytes| parse(&bytes, &self.path)).transpose()
    }
}

pub(super) fn written(record: &Record) -> Result<Vec<u8>, String> {
    let mut bytes = serde_json::to_vec_pretty(record).map_err(|error| error.to_string())?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The journal in a file that is called `path`.
pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Record, String> {
    serde_json::from_slice(bytes).map_err(|error| {
        format!(
            "{} is not a handover journal ({}): restore it or, with both slots stopped, remove it",
            path.display(),
            one_line(error)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_actors::handover::Phase;
    use berth_actors::host::Lease;
    use berth_actors::identity::SlotName;

    fn journal() -> (tempfile::TempDir, HandoverFile) {
        let state = tempfile::tempdir().unwrap();
        let layout = Layout::new(state.path().to_owned(), None);
        files::private_dir(&layout.kcp(), None).unwrap();
        (state, HandoverFile::new(&layout))
    }

    #[tokio::test]
    async fn the_last_phase_written_is_the_one_read() {
        let (_state, journal) = journal();
        assert_eq!(journal.read().await, Ok(None));
        let lease = Lease { holder: "vm_1".into(), uid: "u".into(), resource_version: "562".into() };
        for phase in [Phase::Staged, Phase::Retargeted] {
            let record = Record { from: SlotName::A, to: SlotName::B, phase, old_lease: Some(lease.clone()) };
            journal.write(&record).await.unwrap();
            assert_eq!(journal.read().await, Ok(Some(record)));
        }
    }

    #[tokio::test]
    async fn a_torn_or_foreign_journal_is_refused_by_name() {
        let (_state, journal) = journal();
        let foreign = r#"{"from":"a","to":"b","phase":"done","old_lease":null,"colour":"blue"}"#;
        for bytes in ["", r#"{"from":"a","to""#, "[]", foreign] {
            files::write_atomic(&journal.path, bytes.as_bytes(), None).unwrap();
            let error = journal.read().await.unwrap_err();
            assert!(error.contains("kcp/handover.json is not a handover journal"), "{error}");
        }
    }
}
