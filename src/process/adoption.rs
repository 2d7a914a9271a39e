//! What an earlier daemon left, and how this one takes charge of it.
//!
//! Called by the host. A ledger record is believed only as far as the process itself confirms it: same boot, same pid, same
//! start time, and the token of that life in its environment. A record that was copied with a state directory names another
//! daemon's process; a pid that was given away names a stranger. Neither is signalled, and neither is adopted.
//!
//! Every process is watched from the moment the ledger is read, so one that ends before the tree asks for it is still told
//! with its status.

use super::cgroup::Cgroup;
use super::host::Shared;
use super::ledger::{Ledger, Phase, Record};
use super::life::Life;
use super::mark::StateMark;
use super::survivors::Reaped;
use super::table::{Entry, Marks, Table};
use super::{identity, remains, survivors, unrecorded};
use crate::fault;
use crate::files::FileError;
use berth_actors::host::{Accounted, Running, Survivor};
use berth_actors::identity::{ComponentId, Identity};
use berth_actors::spec::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, PoisonError};

/// The records of an earlier daemon, each with its process while that lives.
#[derive(Debug, Default)]
pub(super) struct Left(BTreeMap<ComponentId, (Record, Option<Arc<Life>>)>);

impl Left {
    /// Reads the ledger, and watches what lives. Blocking.
    pub(super) fn of(ledger: &Ledger, mark: &StateMark) -> Result<Self, FileError> {
        let records = ledger.all()?;
        let intends = |record: &Record| record.phase == Phase::Intent;
        let table =
            if records.iter().any(intends) { Table::read().unwrap_or_default() } else { Table::default() };
        let mut left = BTreeMap::new();
        for recorded in records {
            let record = unrecorded::complete(recorded.clone(), &table, mark);
            if record != recorded
                && let Err(error) = ledger.write(&record)
            {
                tracing::warn!(component = %record.component, %error, "the record stays an intent");
            }
            // What cannot be watched must not be taken for dead: the start fails, and touches nobody.
            let life = watch(&record, mark).map_err(|source| {
                let action = "watch the process of the ledger record";
                FileError { action, path: ledger.path(&record.component), source }
            })?;
            left.insert(record.component.clone(), (record, life));
        }
        Ok(Self(left))
    }

    /// The process of `component` that nobody has taken yet.
    pub(super) fn alive(&self, component: &ComponentId) -> Option<&Identity> {
        let (_, life) = self.0.get(component)?;
        life.as_ref().map(|life| &life.identity)
    }
}

fn watch(record: &Record, mark: &StateMark) -> std::io::Result<Option<Arc<Life>>> {
    let Some(identity) = record.identity() else { return Ok(None) };
    let Some(life) = Life::adopt(identity, Some(record.clone()))? else { return Ok(None) };
    // The pidfd is held and its start time was checked: what is read by pid from here on is of this process.
    if identity::is_alive(identity) && confirms(identity, record, mark) {
        return Ok(Some(Arc::new(life)));
    }
    life.let_go();
    Ok(None)
}

/// Whether the process is of this life and of this state directory.
fn confirms(of: &Identity, record: &Record, mark: &StateMark) -> bool {
    let Some(marks) = Marks::read(of.pid) else { return false };
    let is_here = match marks.component.as_deref().map(|component| mark.parse(component)) {
        Some(component) => component.as_ref() == Some(&record.component),
        None => record.dir.as_ref().is_some_and(|dir| mark.contains(dir)),
    };
    let entry = Entry { pid: of.pid, marks: OnceLock::from(marks), ..Entry::default() };
    is_here && remains::is_marked(record, &entry)
}

impl Shared {
    fn left(&self) -> std::sync::MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn survivors(&self) -> BTreeSet<ComponentId> {
        let left = self.left();
        left.0.keys().filter(|component| left.alive(component).is_some()).cloned().collect()
    }

    pub(super) fn kill_survivor(&self, component: &ComponentId) -> Result<(), String> {
        let life = self.left().0.get(component).and_then(|(_, life)| life.clone());
        life.map_or(Ok(()), |life| life.signal(Signal::Kill))
            .map_err(|error| format!("kill {component}: {error}"))
    }

    pub(super) fn take_over(&self, component: &ComponentId) -> Option<Survivor> {
        let (record, life) = self.left().0.remove(component)?;
        // An intent without a process was a stray, and one of another boot says nothing about this one.
        let identity = record.last().filter(|identity| identity::is_of_this_boot(identity))?;
        fault::point("survivor-taken");
        let alive = life.is_some();
        let running = Running {
            identity: identity.clone(),
            // One that lives may listen elsewhere than the one before it: it is asked again.
            address: if alive { record.address } else { record.known_address() },
            log: record.log.clone(),
            log_offset: record.log_offset,
        };
        if let Some(life) = life {
            self.logs.keep(&record.log);
            // The limits of today's configuration, for a process of yesterday's.
            let cgroup = record.cgroup.clone().map(Cgroup::at);
            self.limiter.apply(component, self.cgroups.as_ref(), cgroup.as_ref());
            self.lives().insert(identity.clone(), life);
        }
        Some(Survivor { running, digest: record.digest, alive })
    }

    pub(super) fn reap_strays(&self, accounted: &Accounted) -> Result<Vec<String>, String> {
        fault::point("strays-unreaped");
        let mut left = self.left();
        left.0.retain(|component, (_, life)| {
            let is_accounted = accounted.for_component(component);
            if let Some(life) = life.as_ref().filter(|_| !is_accounted) {
                life.let_go();
            }
            is_accounted
        });
        let kept: Vec<Record> =
            left.0.values().filter(|(_, life)| life.is_some()).map(|(record, _)| record.clone()).collect();
        drop(left);
        let Reaped { ended, left } =
            survivors::reap(&self.ledger, &self.mark, &kept, accounted).map_err(|error| error.to_string())?;
        let unwatched = |error| format!("watch what outlives SIGKILL: {error}");
        self.strays.keep(left).map_err(unwatched)?;
        Ok(ended.iter().map(ToString::to_string).collect())
    }

    pub(super) fn record_address(&self, component: &ComponentId, of: &Identity, address: SocketAddr) {
        let placed = |record: Record| {
            (record.identity() == Some(of)).then_some(Record { address: Some(address), ..record })
        };
        if let Some(life) = self.lives().get(of) {
            // It listens at one place for as long as it lives.
            let _ = life.address.set(address);
        }
        if let Err(error) = self.ledger.update(component, placed) {
            tracing::warn!(%component, %error, "where it listens is not recorded");
        }
    }
}
