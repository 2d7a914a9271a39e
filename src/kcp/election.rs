//! Remembers under which name the process of a slot stands for election, so that a handover days later still knows it:
//! the log line that tells is written once, and logs rotate.
//!
//! Written by the ready gate, read by the handover. Belongs to one process: a record of another one answers nothing.

use crate::files;
use crate::kcp::start_log::StartLog;
use crate::one_line::one_line;
use berth_actors::host::Running;
use berth_actors::identity::Identity;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Election {
    process: Identity,
    log: PathBuf,
    log_offset: u64,
    identity: Option<String>,
}

impl Election {
    /// Reads the record at `path`. Blocking.
    fn load(path: &Path) -> Result<Option<Self>, String> {
        let Some(bytes) = files::read_optional(path).map_err(|error| error.to_string())? else {
            return Ok(None);
        };
        Self::parse(&bytes, path).map(Some)
    }

    /// The record in a file that is called `path`.
    pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| {
            format!(
                "{} is not an election record ({}): restart the slot, which writes it anew",
                path.display(),
                one_line(error)
            )
        })
    }

    /// Records what is known of `running`; keeps the identity of the same process when nothing newer is known. Blocking.
    pub(crate) fn record(path: &Path, running: &Running, identity: Option<&str>) -> Result<(), String> {
        // A record that cannot be read is replaced: the process it was about is told by the log again.
        let before = Self::load(path).unwrap_or(None).filter(|record| record.process == running.identity);
        let known = identity.map(str::to_owned).or_else(|| before.as_ref()?.identity.clone());
        let record = Self {
            process: running.identity.clone(),
            log: running.log.clone(),
            log_offset: running.log_offset,
            identity: known,
        };
        if before.as_ref() == Some(&record) {
            return Ok(());
        }
        let bytes = serde_json::to_vec(&record).map_err(|error| error.to_string())?;
        files::write_atomic(path, &bytes, None).map_err(|error| error.to_string())
    }

    /// The identity of the process that was recorded last; `None` before it has stood for election. Blocking.
    pub(crate) fn identity(path: &Path) -> Result<Option<String>, String> {
        let Some(record) = Self::load(path)? else { return Ok(None) };
        if record.identity.is_some() {
            return Ok(record.identity);
        }
        let mut log = StartLog::new(&record.log, record.log_offset);
        log.read_on();
        Ok(log.identity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn running(log: &Path, pid: u32, log_offset: u64) -> Running {
        let identity = Identity { boot_id: "boot".into(), pid, start_time: 1 };
        Running { identity, address: None, log: log.to_owned(), log_offset }
    }

    #[test]
    fn the_name_outlives_the_log_that_told_it() {
        let dir = tempfile::tempdir().unwrap();
        let (path, log) = (dir.path().join("election.json"), dir.path().join("gone.log"));
        assert_eq!(Election::identity(&path).unwrap(), None);
        Election::record(&path, &running(&log, 7, 0), Some("vm_1")).unwrap();
        Election::record(&path, &running(&log, 7, 0), None).unwrap();
        assert_eq!(Election::identity(&path).unwrap().as_deref(), Some("vm_1"));
    }

    #[test]
    fn a_new_process_does_not_inherit_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let (path, log) = (dir.path().join("election.json"), dir.path().join("kcp.log"));
        let line =
            |name: &str| format!("] \"(re-)starting leader election\" identity=\"{name}\" name=\"x\"\n");
        files::write_atomic(&log, line("vm_1").as_bytes(), None).unwrap();
        let end_of_first = line("vm_1").len() as u64;
        Election::record(&path, &running(&log, 7, 0), Some("vm_1")).unwrap();
        Election::record(&path, &running(&log, 8, end_of_first), None).unwrap();
        assert_eq!(Election::identity(&path).unwrap(), None);

        files::write_atomic(&log, (line("vm_1") + &line("vm_2")).as_bytes(), None).unwrap();
        assert_eq!(Election::identity(&path).unwrap().as_deref(), Some("vm_2"));
    }

    #[test]
    fn a_torn_record_is_refused_by_name_and_replaced_by_the_next_start() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("election.json");
        files::write_atomic(&path, b"{\"process\":", None).unwrap();
        assert!(Election::identity(&path).unwrap_err().contains("election.json"));
        Election::record(&path, &running(dir.path(), 7, 0), Some("vm_1")).unwrap();
        assert_eq!(Election::identity(&path).unwrap().as_deref(), Some("vm_1"));
    }
}
