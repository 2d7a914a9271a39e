//! One file per tenant, `<state>/clusters/<name>.json`: the durable word on which clusters exist and whether they run.
//!
//! Every call blocks on the file system.

use crate::files::{self, FileError};
use crate::names;
use crate::one_line::one_line;
use crate::tenant::ports::PortError;
use crate::tenant::uids::UidError;
use berth_actors::host::{Recorded, TenantRecord};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

#[derive(Debug, thiserror::Error)]
pub(super) enum RecordError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(transparent)]
    Ports(PortError),
    #[error(transparent)]
    Uids(UidError),
    #[error("what uid {uid} has left outside of its directories cannot be removed: {source}")]
    Left { uid: u32, source: io::Error },
    #[error(
        "{path} is not a cluster's record ({reason}): restore it from a backup, or move it away to forget the cluster"
    )]
    Torn { path: PathBuf, reason: String },
    #[error("{path} is the record of {name}: a record carries its file's name")]
    Foreign { path: PathBuf, name: String },
}

#[derive(Debug)]
pub(super) struct Records {
    dir: PathBuf,
}

impl Records {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.json"))
    }

    /// All records, by name. A torn or foreign one is told by its file's name: starting without a word would hide a cluster.
    pub(super) fn all(&self) -> Result<Recorded, RecordError> {
        let failed = |source| FileError { action: "list", path: self.dir.clone(), source };
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Recorded::default()),
            Err(error) => return Err(failed(error).into()),
        };
        let mut recorded = Recorded::default();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if path.extension().is_some_and(|extension| extension == "json") && !hidden {
                match read(&path) {
                    Ok(record) => recorded.tenants.push(record),
                    Err(error) => {
                        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
                        recorded.unreadable.insert(name, error.to_string());
                    }
                }
            }
        }
        recorded.tenants.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(recorded)
    }

    pub(super) fn put(&self, record: &TenantRecord) -> Result<(), RecordError> {
        let path = self.path(&record.name);
        let torn =
            |error: serde_json::Error| RecordError::Torn { path: path.clone(), reason: error.to_string() };
        let bytes = serde_json::to_vec_pretty(record).map_err(torn)?;
        Ok(files::write_atomic(&path, &bytes, None)?)
    }

    /// Idempotent.
    pub(super) fn remove(&self, name: &str) -> Result<(), RecordError> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Ok(()) => Ok(files::sync_dir(&self.dir)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(FileError { action: "remove", path, source }.into()),
        }
    }
}

fn read(path: &Path) -> Result<TenantRecord, RecordError> {
    parse(&files::read(path)?, path)
}

/// The record in a file that is called `path`.
pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<TenantRecord, RecordError> {
    let record: TenantRecord = serde_json::from_slice(bytes)
        .map_err(|error| RecordError::Torn { path: path.to_owned(), reason: one_line(error) })?;
    // A name leads to paths, sockets and chains: one that could not be given to a cluster is not taken from a file either.
    names::cluster(&record.name)
        .map_err(|error| RecordError::Torn { path: path.to_owned(), reason: error.to_string() })?;
    if let Some(since) = &record.paused {
        OffsetDateTime::parse(since, &Rfc3339).map_err(|error| RecordError::Torn {
            path: path.to_owned(),
            reason: format!("paused: {error}"),
        })?;
    }
    if path.file_stem().is_some_and(|stem| stem == record.name.as_str()) {
        Ok(record)
    } else {
        Err(RecordError::Foreign { path: path.to_owned(), name: record.name })
    }
}

/// Removes a directory and all below it, durably: the record that remembers it goes next. Idempotent.
pub(super) fn remove_tree(path: &Path) -> Result<(), RecordError> {
    if path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(());
    }
    files::remove_tree(path)?;
    Ok(path.parent().map_or(Ok(()), files::sync_dir)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_actors::host::Distribution;

    fn record(name: &str) -> TenantRecord {
        TenantRecord {
            name: name.into(),
            uid: "u".into(),
            distribution: Distribution::K3s,
            run: true,
            erase: false,
            paused: None,
        }
    }

    #[test]
    fn what_is_put_is_found_again_and_what_is_removed_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path().to_owned());
        records.put(&record("b")).unwrap();
        records.put(&record("a")).unwrap();
        assert_eq!(records.all().unwrap().tenants, [record("a"), record("b")]);
        records.remove("a").unwrap();
        records.remove("a").unwrap();
        assert_eq!(records.all().unwrap().tenants, [record("b")]);
    }

    #[test]
    fn a_record_from_before_there_was_a_choice_is_of_kubernetes_and_stays_so() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path().to_owned());
        let text = br#"{"name":"old","uid":"u","run":true}"#;
        files::write_atomic(&dir.path().join("old.json"), text, None).unwrap();
        let old = records.all().unwrap().tenants.remove(0);
        assert_eq!(old.distribution, Distribution::Kubernetes);
        records.put(&old).unwrap();
        assert_eq!(records.all().unwrap().tenants, [old]);
        assert!(!fs::read_to_string(dir.path().join("old.json")).unwrap().contains("distribution"));
        records.put(&record("new")).unwrap();
        assert!(fs::read_to_string(dir.path().join("new.json")).unwrap().contains("\"k3s\""));
    }

    #[test]
    fn a_pause_is_kept_with_its_time_and_one_without_a_time_is_torn() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path().to_owned());
        let paused = TenantRecord { paused: Some("2026-01-02T03:04:05Z".into()), ..record("quiet") };
        records.put(&paused).unwrap();
        assert!(!paused.should_run());
        assert_eq!(records.all().unwrap().tenants.first(), Some(&paused));
        records.put(&TenantRecord { paused: Some("since then".into()), ..paused }).unwrap();
        assert!(records.all().unwrap().unreadable["quiet"].contains("paused"));
    }

    #[test]
    fn a_torn_or_foreign_record_is_told_by_name_and_hides_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::new(dir.path().to_owned());
        records.put(&record("good")).unwrap();
        fs::copy(dir.path().join("good.json"), dir.path().join("other.json")).unwrap();
        let recorded = records.all().unwrap();
        assert_eq!(recorded.tenants, [record("good")]);
        let error = &recorded.unreadable["other"];
        assert!(error.contains("other.json") && error.contains("good"), "{error}");
        fs::File::create(dir.path().join("other.json")).unwrap();
        let error = &records.all().unwrap().unreadable["other"];
        assert!(error.contains("other.json") && error.contains("backup"), "{error}");
    }
}
