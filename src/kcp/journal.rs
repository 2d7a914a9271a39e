//! `<state>/kcp/handover.json`: how far the last handover has come, so that a daemon killed at any point resumes it; and
//! the way to the history of those that are over.
//!
//! One record, replaced atomically and synced before a phase begins. A file that is not one is refused by name: guessing
//! which slot is active could put the front on a dead one.

use super::history;
use crate::fault;
use crate::files;
use crate::layout::Layout;
use crate::off_thread::off_thread;
use crate::one_line::one_line;
use async_trait::async_trait;
use berth_actors::handover::Record;
use berth_actors::host::{History, Journal};
use std::path::{Path, PathBuf};
use time::format_description::well_known::Rfc3339;

#[derive(Debug, Clone)]
pub struct HandoverFile {
    path: PathBuf,
    history: PathBuf,
}

impl HandoverFile {
    pub fn new(layout: &Layout) -> Self {
        let dir = layout.kcp();
        Self { path: dir.join("handover.json"), history: dir.join("handovers.jsonl") }
    }
}

#[async_trait]
impl Journal for HandoverFile {
    async fn write(&self, record: &Record) -> Result<(), String> {
        let bytes = written(record)?;
        let path = self.path.clone();
        let written = off_thread(move || files::write_atomic(&path, &bytes, None)).await;
        fault::point(&format!("handover-{}", record.phase));
        written.map_err(|error| error.to_string())
    }

    async fn read(&self) -> Result<Option<Record>, String> {
        let path = self.path.clone();
        let bytes =
            off_thread(move || files::read_optional(&path)).await.map_err(|error| error.to_string())?;
        bytes.map(|bytes| parse(&bytes, &self.path)).transpose()
    }

    async fn remember(&self, record: &Record) -> Result<(), String> {
        if record.began.is_none() {
            // Of a Berth that kept no history: there is nothing to tell but that it was.
            return Ok(());
        }
        let (path, record) = (self.history.clone(), record.clone());
        let added = off_thread(move || history::add(&path, &record)).await;
        fault::point("handover-remembered");
        added
    }

    async fn history(&self) -> Result<History, String> {
        let path = self.history.clone();
        off_thread(move || history::read(&path)).await
    }

    fn now(&self) -> String {
        // It cannot fail for a date within the next eight thousand years.
        crate::clock::now().format(&Rfc3339).unwrap_or_default()
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
    use berth_actors::handover::{Phase, Side, Wish};
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
            let mut record = Record::new(SlotName::A, Wish::RotateCertificates);
            (record.phase, record.old_lease) = (phase, Some(lease.clone()));
            record.new = Side { version: Some("v0.33.0".into()), ..Side::default() };
            journal.write(&record).await.unwrap();
            assert_eq!(journal.read().await, Ok(Some(record)));
        }
    }

    /// As Berth wrote it before it kept more than the phase.
    #[tokio::test]
    async fn a_record_of_an_earlier_berth_is_read_and_takes_no_place_in_the_history() {
        let (_state, journal) = journal();
        let earlier = r#"{"from":"b","to":"a","phase":"old_stopping","old_lease":{"holder":"vm_1","uid":"u","resource_version":"562"}}"#;
        files::write_atomic(&journal.path, earlier.as_bytes(), None).unwrap();
        let record = journal.read().await.unwrap().unwrap();
        assert_eq!((record.active(), record.phase), (SlotName::A, Phase::OldStopping));
        assert_eq!((&record.wish, &record.began), (&Wish::Plain, &None));
        journal.remember(&record).await.unwrap();
        assert_eq!(journal.history().await, Ok(History::default()));
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
