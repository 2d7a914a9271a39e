//! `<state>/kcp/releases.json`: which kcp each slot runs, and the newest that ever bootstrapped the store.
//!
//! A handover stages a program for the slot it starts, and promotes it once the front has moved: from then on it is what both
//! slots run, over the configuration's. One record, replaced atomically before what it says comes true.

use crate::components::Program;
use crate::files;
use crate::kcp::release::{self, Downgrade};
use crate::layout::Layout;
use crate::one_line::one_line;
use berth_actors::identity::SlotName;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A program that an upgrade chose. The configured one is none of these.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chosen {
    pub program: PathBuf,
    /// As the program says it.
    pub version: String,
}

impl Chosen {
    pub(crate) fn program(&self) -> Program {
        let stand_in = self.version.contains("stand-in").then(|| format!("it calls itself {}", self.version));
        Program { stand_in, ..Program::real(&self.program) }
    }
}

/// What is in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Record {
    /// As it calls itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    newest: Option<String>,
    /// An older one that an operator agreed to.
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<String>,
    /// What both slots run; absent: the configured one.
    #[serde(skip_serializing_if = "Option::is_none")]
    chosen: Option<Chosen>,
    /// What serves: it may always be started again, also when a newer one was tried beside it and taken back.
    #[serde(skip_serializing_if = "Option::is_none")]
    serving: Option<String>,
    /// The slot that a handover starts, until it is promoted.
    #[serde(skip_serializing_if = "Option::is_none")]
    staged: Option<SlotName>,
    /// What was started last in each slot, as it calls itself.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ran: BTreeMap<SlotName, String>,
    /// What a handover staged for a slot, or left to it; `null`: the configured one.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    slots: BTreeMap<SlotName, Option<Chosen>>,
}

impl Record {
    fn of(&self, slot: SlotName) -> Option<Chosen> {
        self.slots.get(&slot).cloned().unwrap_or_else(|| self.chosen.clone())
    }
}

/// Cheap to clone; all methods but [`Self::of`] block.
#[derive(Debug, Clone)]
pub struct Releases {
    path: PathBuf,
    record: Arc<Mutex<Record>>,
}

impl Releases {
    /// A file that is not one is refused by name: an older kcp might be started over it.
    pub fn open(layout: &Layout) -> Result<Self, String> {
        let path = layout.kcp().join("releases.json");
        let bytes = files::read_optional(&path).map_err(|error| error.to_string())?;
        let record = bytes.map(|bytes| parse(&bytes, &path)).transpose()?.unwrap_or_default();
        Ok(Self { path, record: Arc::new(Mutex::new(record)) })
    }

    /// What `slot` runs, or would if it were started now; `None`: the configured kcp.
    pub fn of(&self, slot: SlotName) -> Option<Chosen> {
        self.locked().of(slot)
    }

    /// What an upgrade put over the configuration.
    pub fn chosen(&self) -> Option<Chosen> {
        self.locked().chosen.clone()
    }

    /// Every program that a start of a slot may take.
    pub(crate) fn programs(&self) -> Vec<PathBuf> {
        let record = self.locked();
        let slots = record.slots.values().flatten();
        slots.chain(&record.chosen).map(|chosen| chosen.program.clone()).collect()
    }

    pub fn newest(&self) -> Option<String> {
        self.locked().newest.clone()
    }

    /// `slot` is to be started with `chosen` (`None`: the configured one); the other one keeps what it has.
    pub(crate) fn stage(&self, slot: SlotName, chosen: Option<Chosen>) -> Result<(), String> {
        self.change(|record| {
            let other = record.of(slot.other());
            record.slots = BTreeMap::from([(slot, chosen), (slot.other(), other)]);
            record.staged = Some(slot);
        })
    }

    /// What `slot` runs is what both run from now on. Idempotent.
    pub(crate) fn promote(&self, slot: SlotName) -> Result<(), String> {
        self.change(|record| {
            record.chosen = record.of(slot);
            record.serving = record.ran.get(&slot).cloned();
            record.staged = None;
        })
    }

    /// An operator agreed to this one, although a newer one has bootstrapped the store.
    pub(crate) fn allow(&self, said: &str) -> Result<(), String> {
        self.change(|record| record.allowed = Some(said.to_owned()))
    }

    /// Whether the kcp that calls itself `said` may be started on this store.
    pub(crate) fn may_start(&self, said: &str) -> Result<(), Downgrade> {
        let record = self.locked();
        if [&record.allowed, &record.serving].into_iter().any(|agreed| agreed.as_deref() == Some(said)) {
            return Ok(());
        }
        release::may_start(said, record.newest.as_deref())
    }

    /// It is about to bootstrap the store, in `slot`: durable before it does.
    pub(crate) fn bootstraps(&self, slot: SlotName, said: &str) -> Result<(), String> {
        self.change(|record| {
            record.ran.insert(slot, said.to_owned());
            if record.staged != Some(slot) {
                record.serving = Some(said.to_owned());
            }
            record.newest = Some(release::newer(said, record.newest.as_deref()));
            // An older one was agreed to for as long as it runs.
            if record.newest.as_deref() == Some(said) {
                record.allowed = None;
            }
        })
    }

    fn change(&self, change: impl FnOnce(&mut Record)) -> Result<(), String> {
        let mut locked = self.locked();
        let mut record = locked.clone();
        change(&mut record);
        if record != *locked {
            let mut bytes = serde_json::to_vec_pretty(&record).map_err(|error| error.to_string())?;
            bytes.push(b'\n');
            files::write_atomic(&self.path, &bytes, None).map_err(|error| error.to_string())?;
            *locked = record;
        }
        Ok(())
    }

    fn locked(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parse(bytes: &[u8], path: &Path) -> Result<Record, String> {
    serde_json::from_slice(bytes).map_err(|error| {
        format!(
            "{} is not a record of kcp releases ({}): restore it; without it nobody knows which kcp has bootstrapped the store",
            path.display(),
            one_line(error)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "v1.36.0+kcp-v0.33.0";
    const NEW: &str = "v1.36.0+kcp-v0.34.0";

    fn home() -> (tempfile::TempDir, Layout) {
        let state = tempfile::tempdir().unwrap();
        let layout = Layout::new(state.path().to_owned(), None);
        files::private_dir(&layout.kcp(), None).unwrap();
        (state, layout)
    }

    fn chosen() -> Chosen {
        Chosen { program: "/opt/kcp-0.34".into(), version: NEW.into() }
    }

    #[test]
    fn an_upgrade_is_one_slots_until_it_is_promoted_and_both_ones_after() {
        let (_state, layout) = home();
        let releases = Releases::open(&layout).unwrap();
        releases.stage(SlotName::B, Some(chosen())).unwrap();
        // The next daemon knows which slot runs what, in the middle of it.
        let next = Releases::open(&layout).unwrap();
        assert_eq!((next.of(SlotName::A), next.of(SlotName::B), next.chosen()), (None, Some(chosen()), None));
        next.promote(SlotName::B).unwrap();
        next.promote(SlotName::B).unwrap();
        assert_eq!(
            (next.of(SlotName::A), next.of(SlotName::B), next.chosen()),
            (None, Some(chosen()), Some(chosen()))
        );
        // The next plain handover brings the old slot along.
        next.stage(SlotName::A, next.chosen()).unwrap();
        assert_eq!(Releases::open(&layout).unwrap().of(SlotName::A), Some(chosen()));
    }

    #[test]
    fn an_upgrade_that_is_rolled_back_or_taken_back_is_forgotten() {
        let (_state, layout) = home();
        let releases = Releases::open(&layout).unwrap();
        releases.stage(SlotName::B, Some(chosen())).unwrap();
        releases.promote(SlotName::B).unwrap();
        releases.promote(SlotName::A).unwrap();
        assert_eq!(releases.chosen(), None);
        releases.stage(SlotName::B, releases.chosen()).unwrap();
        assert_eq!(releases.of(SlotName::B), None);
    }

    #[test]
    fn an_older_one_is_refused_until_somebody_agrees_and_the_newest_stays_known() {
        let (_state, layout) = home();
        let releases = Releases::open(&layout).unwrap();
        releases.bootstraps(SlotName::A, NEW).unwrap();
        let releases = Releases::open(&layout).unwrap();
        assert!(releases.may_start(OLD).is_err());
        releases.allow(OLD).unwrap();
        releases.may_start(OLD).unwrap();
        releases.bootstraps(SlotName::A, OLD).unwrap();
        let releases = Releases::open(&layout).unwrap();
        assert_eq!(releases.newest().as_deref(), Some(NEW));
        releases.may_start(OLD).unwrap();
        releases.bootstraps(SlotName::A, NEW).unwrap();
        assert!(releases.may_start(OLD).is_err(), "it was agreed to once, not for ever");
    }

    #[test]
    fn an_upgrade_that_was_started_and_taken_back_does_not_lock_the_old_one_out() {
        let (_state, layout) = home();
        let releases = Releases::open(&layout).unwrap();
        releases.bootstraps(SlotName::A, OLD).unwrap();
        releases.stage(SlotName::B, Some(chosen())).unwrap();
        releases.bootstraps(SlotName::B, NEW).unwrap();
        let releases = Releases::open(&layout).unwrap();
        assert_eq!(releases.newest().as_deref(), Some(NEW));
        releases.may_start(OLD).unwrap();
        releases.promote(SlotName::B).unwrap();
        assert!(releases.may_start(OLD).is_err());
        releases.promote(SlotName::A).unwrap();
        releases.may_start(OLD).unwrap();
    }

    #[test]
    fn a_torn_record_is_refused_by_name() {
        let (_state, layout) = home();
        files::write_atomic(&layout.kcp().join("releases.json"), b"{\"newest\":", None).unwrap();
        let error = Releases::open(&layout).unwrap_err();
        assert!(error.contains("kcp/releases.json is not a record of kcp releases"), "{error}");
    }
}
