//! The durable record of what runs: one file per component, `<state>/ledger/<chain>.<component>.json`.
//!
//! Written before the spawn with phase `intent`, completed after it, closed when nothing is left of the process. The next
//! daemon reads them to find what this one left behind.

use crate::fault;
use crate::files::{self, FileError};
use crate::names;
use berth_actors::identity::{ComponentId, Identity};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// By what the processes of one component's life are recognised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) component: ComponentId,
    /// In the environment of each of them, unless it overwrote that.
    pub(super) token: String,
    /// The executable, links resolved: what `/proc/<pid>/exe` shows.
    pub(super) program: PathBuf,
    /// The working directory, where it lies in the state directory: elsewhere, others may run the same program.
    pub(super) dir: Option<PathBuf>,
    /// The cgroup it was born in.
    pub(super) cgroup: Option<PathBuf>,
    /// What it was started with; a record of an older Berth has none, and its process fits nothing.
    #[serde(default)]
    pub(super) digest: String,
    /// Its log, and where in it this life begins.
    #[serde(default)]
    pub(super) log: PathBuf,
    #[serde(default)]
    pub(super) log_offset: u64,
    /// Where it listens, once that is known.
    #[serde(default)]
    pub(super) address: Option<SocketAddr>,
    /// Where the life before it listened: its clients know no other place.
    #[serde(default)]
    pub(super) previous: Option<SocketAddr>,
    pub(super) phase: Phase,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Phase {
    /// About to be born, or born by a daemon that did not live to write down its pid.
    Intent,
    Running(Identity),
    /// Nothing is left of it. The record stays for the place where it listened, which its successor must come back to.
    Ended(Identity),
}

impl Record {
    /// The names lead to a path, and everybody in the cgroup is killed: neither is taken from a file as it stands.
    fn is_ours(&self) -> bool {
        let ComponentId { chain, component } = &self.component;
        let own = format!("{chain}.{component}");
        let is_own = |cgroup: &PathBuf| {
            let root = cgroup.parent().and_then(Path::file_name);
            cgroup.file_name().is_some_and(|name| name == own.as_str())
                && root.is_some_and(|name| name.as_encoded_bytes().starts_with(b"berth-"))
        };
        names::chain(chain).is_ok()
            && names::component(component).is_ok()
            && self.cgroup.as_ref().is_none_or(is_own)
    }

    /// Without what only the next daemon needs.
    pub(super) fn to_recognise(&self) -> Self {
        Self { digest: String::new(), log: PathBuf::new(), ..self.clone() }
    }

    /// For tests that care for nothing else of it.
    #[cfg(test)]
    pub(super) fn blank(phase: Phase) -> Self {
        Self {
            component: ComponentId::new("demo", "kine"),
            token: "t".into(),
            program: "/bin/kine".into(),
            dir: None,
            cgroup: None,
            digest: "d".into(),
            log: "/log".into(),
            log_offset: 5,
            address: Some(SocketAddr::from(([127, 0, 0, 1], 2379))),
            previous: None,
            phase,
        }
    }

    pub(super) fn identity(&self) -> Option<&Identity> {
        match &self.phase {
            Phase::Intent | Phase::Ended(_) => None,
            Phase::Running(identity) => Some(identity),
        }
    }

    /// The last process of this life, alive or not.
    pub(super) fn last(&self) -> Option<&Identity> {
        match &self.phase {
            Phase::Intent => None,
            Phase::Running(identity) | Phase::Ended(identity) => Some(identity),
        }
    }

    /// Where this life listened or, before that was known, the one before it.
    pub(super) fn known_address(&self) -> Option<SocketAddr> {
        self.address.or(self.previous)
    }
}

#[derive(Debug, Clone)]
pub(super) struct Ledger {
    dir: PathBuf,
    /// Held from reading a record to writing what follows from it.
    turn: Arc<Mutex<()>>,
}

/// A write within one page is done or not begun when its writer is killed.
const PAGE: usize = 4096;

impl Ledger {
    /// Creates the directory. Blocking, like everything here.
    pub(super) fn open(dir: PathBuf) -> Result<Self, FileError> {
        files::private_dir(&dir, None)?;
        Ok(Self { dir, turn: Arc::default() })
    }

    /// Replaces the component's record. Not synced to disk: a record has to outlive the daemon, and a crash of the host
    /// ends every process that it could name. Two syncs before each spawn would cost more than the spawn.
    ///
    /// For the same reason it is written in place, over the one before, in one call: a new file and its rename cost more than
    /// the birth as well, and a daemon that is killed has finished that call or not begun it. Spaces take the place of what
    /// was longer. A record of more than a page could be torn, and is renamed into its place.
    pub(super) fn write(&self, record: &Record) -> Result<(), FileError> {
        let _turn = self.turn();
        self.put(record)
    }

    /// Puts what `change` makes of the component's record in its place; `None` changes nothing.
    pub(super) fn update(
        &self,
        component: &ComponentId,
        change: impl FnOnce(Record) -> Option<Record>,
    ) -> Result<(), FileError> {
        let _turn = self.turn();
        self.read(component).and_then(change).map_or(Ok(()), |record| self.put(&record))
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, record: &Record) -> Result<(), FileError> {
        let path = self.path(&record.component);
        let failed = |source| FileError { action: "write the ledger record", path: path.clone(), source };
        let mut bytes = serde_json::to_vec(record).map_err(|error| failed(error.into()))?;
        let (mode, flags) = (0o600, OFlags::NOFOLLOW.bits().cast_signed());
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(mode).custom_flags(flags);
        let file = options.open(&path).map_err(failed)?;
        let before = file.metadata().map_err(failed)?.len();
        if bytes.len() > PAGE {
            return files::write_atomic(&path, &bytes, None);
        }
        bytes.resize(bytes.len().max(usize::try_from(before).unwrap_or_default()), b' ');
        fault::storage("ledger-writing").map_err(failed)?;
        file.write_all_at(&bytes, 0).map_err(failed)?;
        fault::point("ledger-written");
        Ok(())
    }

    pub(super) fn read(&self, component: &ComponentId) -> Option<Record> {
        read(&self.path(component)).ok()
    }

    /// Nothing is left of the component's life `of` (`None`: of whichever is on record): what stays of its record is where it
    /// listened. The record of another life is left alone.
    pub(super) fn close(&self, component: &ComponentId, of: Option<&Identity>) -> Result<(), FileError> {
        let _turn = self.turn();
        let record = self.read(component);
        if let (Some(of), Some(record)) = (of, &record)
            && record.last() != Some(of)
        {
            return Ok(());
        }
        let closed = record.filter(|record| record.known_address().is_some()).and_then(|record| {
            let last = record.last()?.clone();
            Some(Record { phase: Phase::Ended(last), ..record })
        });
        let Some(closed) = closed else { return self.remove(component) };
        self.put(&closed).or_else(|error| {
            // What cannot be kept must not name a process that is gone.
            tracing::warn!(%component, %error, "where it listened is forgotten");
            self.remove(component)
        })
    }

    /// Removing what is not there is fine.
    pub(super) fn remove(&self, component: &ComponentId) -> Result<(), FileError> {
        let path = self.path(component);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(FileError { action: "remove the ledger record", path, source })
            }
            _ => Ok(()),
        }
    }

    /// Every readable record. One that a crash of the host tore names nothing that lives, and is dropped.
    pub(super) fn all(&self) -> Result<Vec<Record>, FileError> {
        let listing = |source| FileError { action: "list the ledger", path: self.dir.clone(), source };
        let mut records = Vec::new();
        for entry in fs::read_dir(&self.dir).map_err(listing)? {
            let path = entry.map_err(listing)?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            let bytes = match files::read_optional(&path) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => continue,
                // It may be a good one: what it names must not be taken for a stray.
                Err(error) => return Err(error),
            };
            match parse(&bytes) {
                Ok(record) => records.push(record),
                Err(error) => {
                    tracing::warn!(path = %path.display(), %error, "dropping an unreadable ledger record");
                    let _ = fs::remove_file(&path);
                }
            }
        }
        Ok(records)
    }

    pub(super) fn path(&self, component: &ComponentId) -> PathBuf {
        self.dir.join(format!("{}.{}.json", component.chain, component.component))
    }
}

/// The program of every record in `dir`, whoever's daemon writes there; changes nothing. One that cannot be read names nothing
/// that lives.
pub(crate) fn programs_on_record(dir: &Path) -> Result<Vec<PathBuf>, FileError> {
    let listing = |source| FileError { action: "list the ledger", path: dir.to_owned(), source };
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(listing)?,
    };
    let mut programs = Vec::new();
    for entry in entries {
        let path = entry.map_err(listing)?.path();
        if path.extension().is_some_and(|extension| extension == "json")
            && let Some(bytes) = files::read_optional(&path)?
            && let Ok(record) = parse(&bytes)
        {
            programs.push(record.program);
        }
    }
    Ok(programs)
}

fn read(path: &Path) -> std::io::Result<Record> {
    parse(&files::read(path)?)
}

pub(super) fn parse(bytes: &[u8]) -> std::io::Result<Record> {
    let record: Record = serde_json::from_slice(bytes)?;
    if record.is_ours() {
        return Ok(record);
    }
    Err(std::io::Error::other("it names a component or a cgroup that cannot be Berth's"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_back_and_a_torn_one_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(dir.path().join("ledger")).unwrap();
        let record = Record::blank(Phase::Running(Identity { boot_id: "b".into(), pid: 7, start_time: 9 }));
        ledger
            .write(&Record { program: "/a/longer/path/than/the/one/that/follows".into(), ..record.clone() })
            .unwrap();
        ledger.write(&record).unwrap();
        let torn = dir.path().join("ledger/demo.postgres.json");
        files::write_atomic(&torn, b"{\"component\":", None).unwrap();

        assert_eq!(ledger.all().unwrap(), std::slice::from_ref(&record));
        assert!(!torn.exists());
        ledger.remove(&record.component).unwrap();
        ledger.remove(&record.component).unwrap();
        assert_eq!(ledger.all().unwrap(), []);
    }

    #[test]
    fn a_record_of_a_foreign_cgroup_or_of_a_path_is_not_taken() {
        let with = |chain: &str, cgroup: &str| {
            parse(
                serde_json::json!({
                    "component": {"chain": chain, "component": "kine"}, "token": "t", "program": "/bin/kine",
                    "dir": null, "cgroup": cgroup, "phase": "intent",
                })
                .to_string()
                .as_bytes(),
            )
        };
        assert!(with("demo", "/sys/fs/cgroup/x/berth-0123/demo.kine").is_ok());
        for (chain, cgroup) in [
            ("../x", "/sys/fs/cgroup/berth-0123/../x.kine"),
            ("demo", "/sys/fs/cgroup/system.slice"),
            ("demo", "/sys/fs/cgroup/berth-0123/other.kine"),
            ("demo", "/"),
            ("demo", "/demo.kine"),
        ] {
            assert!(with(chain, cgroup).is_err(), "{chain} {cgroup}");
        }
    }
}
