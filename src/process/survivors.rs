//! What an earlier daemon on the same state directory left running and nobody adopts.
//!
//! The host calls [`reap`] once, before the first start (G1): two processes of one component would share a data directory.

use super::cgroup::{Cgroup, CgroupRoot};
use super::ledger::{Ledger, Record};
use super::mark::StateMark;
use super::reap::{self, ReapError, Target, Targets};
use super::table::{Entry, Table};
use super::{life, remains};
use crate::files::FileError;
use crate::layout::Layout;
use crate::off_thread::off_thread;
use berth_actors::host::Accounted;
use berth_actors::identity::ComponentId;
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// The component whose main process is asked before it is killed: it writes a checkpoint and spares the next start a
/// recovery.
const ASKED_FIRST: &str = "postgres";
/// From SIGINT to SIGKILL. A fast shutdown takes 0.1 s when idle and a few seconds with much to write.
const ASKED_FOR: Duration = Duration::from_secs(10);

/// One process that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Survivor {
    pub component: ComponentId,
    pub pid: u32,
    pub name: String,
}

impl fmt::Display for Survivor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, pid {})", self.component, self.name, self.pid)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum SurvivorError {
    #[error(transparent)]
    Ledger(#[from] FileError),
    #[error("processes of an earlier daemon on {state} cannot be reaped: {reason}")]
    Reap { state: String, reason: String },
}

/// Ends every process of an earlier daemon. Takes milliseconds, or up to 15 s when a postgres is slow to end.
pub async fn reap_all(layout: &Layout) -> Result<Vec<Survivor>, SurvivorError> {
    let layout = layout.clone();
    off_thread(move || reap_all_blocking(&layout)).await
}

pub(super) fn reap_all_blocking(layout: &Layout) -> Result<Vec<Survivor>, SurvivorError> {
    let mark = StateMark::of(layout);
    let Reaped { ended, left } = reap(&Ledger::open(layout.ledger())?, &mark, &[], &Accounted::default())?;
    if left.is_empty() {
        return Ok(ended);
    }
    let left = left.into_iter().map(|(target, survivor)| (target, survivor.name)).collect();
    Err(SurvivorError::of(&mark, &ReapError::Left { after: reap::DEADLINE, left }))
}

/// What became of the processes that nobody adopts.
pub(super) struct Reaped {
    pub(super) ended: Vec<Survivor>,
    /// SIGKILL does not end them. Their records stay.
    pub(super) left: BTreeMap<Target, Survivor>,
}

impl SurvivorError {
    fn of(mark: &StateMark, reason: &dyn fmt::Display) -> Self {
        Self::Reap { state: mark.state().display().to_string(), reason: reason.to_string() }
    }
}

/// Ends every process of an earlier daemon that is not of a life in `kept` nor of a chain that is not to be touched, and
/// returns what was found. What cannot be ended holds up nobody here. Records that somebody accounts for stay: a dead one still says where it listened. Blocking.
pub(super) fn reap(
    ledger: &Ledger,
    mark: &StateMark,
    kept: &[Record],
    accounted: &Accounted,
) -> Result<Reaped, SurvivorError> {
    let is_spared =
        |record: &Record| kept.contains(record) || accounted.untouched.contains(&record.component.chain);
    let records = ledger.all()?.into_iter().filter(|record| !is_spared(record)).collect();
    let search = Search::new(records, kept, mark, &accounted.untouched);
    search.ask().map_err(|error| SurvivorError::of(mark, &error))?;
    let mut found = BTreeMap::new();
    let left = match reap::kill_all(reap::DEADLINE, || search.kill_cgroups_and_look(&mut found)) {
        Ok(_) => Targets::new(),
        Err(ReapError::Left { left, .. }) => left,
        Err(error) => return Err(SurvivorError::of(mark, &error)),
    };
    let (left, ended): (BTreeMap<_, _>, BTreeMap<_, _>) =
        found.into_iter().partition(|(target, _)| left.contains_key(target));

    search.cgroups.iter().for_each(|(_, cgroup)| cgroup.remove());
    let is_left = |record: &&Record| left.values().any(|survivor| survivor.component == record.component);
    for record in search.records.iter().filter(|record| !is_left(record)) {
        if !accounted.for_component(&record.component) || record.last().is_none() {
            ledger.remove(&record.component)?;
        }
    }
    Ok(Reaped { ended: ended.into_values().collect(), left })
}

struct Search<'a> {
    records: Vec<Record>,
    kept: Kept,
    untouched: &'a BTreeSet<String>,
    mark: &'a StateMark,
    cgroups: Vec<(ComponentId, Cgroup)>,
}

/// The lives that are not to be touched.
struct Kept {
    leaders: HashSet<Target>,
    pids: HashSet<u32>,
    tokens: HashSet<String>,
}

impl Kept {
    fn new(records: &[Record]) -> Self {
        let leaders: HashSet<Target> =
            records.iter().filter_map(Record::identity).map(Target::from).collect();
        let pids = leaders.iter().map(|leader| leader.pid).collect();
        Self { leaders, pids, tokens: records.iter().map(|record| record.token.clone()).collect() }
    }

    fn has(&self, table: &Table, entry: &Entry) -> bool {
        entry.marks().token.as_ref().is_some_and(|token| self.tokens.contains(token))
            || table.lineage(entry.pid).any(|relative| self.leaders.contains(&relative.into()))
    }
}

impl<'a> Search<'a> {
    /// The earlier daemon may have lived in another cgroup than this one: its records say where. A record that was copied
    /// with a state directory names another one's.
    fn new(
        records: Vec<Record>,
        kept: &[Record],
        mark: &'a StateMark,
        untouched: &'a BTreeSet<String>,
    ) -> Self {
        let recorded =
            records.iter().filter_map(|record| Some((record.component.clone(), record.cgroup.clone()?)));
        let here = CgroupRoot::look(mark).map(|root| root.all()).unwrap_or_default();
        let cgroups = recorded
            .filter(|(_, dir)| CgroupRoot::is_of(dir, mark))
            .map(|(component, dir)| (component, Cgroup::at(dir)))
            .chain(here)
            .filter(|(component, _)| !untouched.contains(&component.chain))
            .filter(|(component, _)| !kept.iter().any(|kept| kept.component == *component))
            .collect();
        Self { records, kept: Kept::new(kept), untouched, mark, cgroups }
    }

    /// Lets every postgres shut down at once, and waits for the slowest.
    fn ask(&self) -> io::Result<()> {
        let table = Table::read()?;
        let postgres: HashMap<u32, &Entry> = self
            .marked(&table)
            .filter(|(component, _)| component.component == ASKED_FIRST)
            .map(|(_, entry)| (entry.pid, entry))
            .collect();
        // What it started itself ends with it.
        let asked: Vec<_> = postgres
            .values()
            .filter(|entry| !postgres.contains_key(&entry.parent))
            .filter_map(|entry| reap::open(&(*entry).into()).transpose())
            .collect::<Result<_, _>>()?;
        for postgres in &asked {
            // A failure shows as a process that is left.
            let _ = pidfd_send_signal(postgres, Signal::INT);
        }
        let end = Instant::now() + ASKED_FOR;
        for postgres in &asked {
            life::ended_within(postgres, reap::timespec(end.saturating_duration_since(Instant::now())));
        }
        Ok(())
    }

    /// Everything that still lives, by cgroup, by record and by mark. `found` gathers it under its component.
    fn kill_cgroups_and_look(&self, found: &mut BTreeMap<Target, Survivor>) -> io::Result<Targets> {
        let table = Table::read()?;
        let mut left: Vec<(&ComponentId, Target, String)> = Vec::new();
        let marked: Vec<_> = self.marked(&table).collect();
        left.extend(marked.iter().map(|(component, entry)| (component, (*entry).into(), entry.name.clone())));
        for (component, cgroup) in &self.cgroups {
            left.extend(cgroup.kill()?.into_iter().map(|(target, name)| (component, target, name)));
        }
        for record in &self.records {
            let component = &record.component;
            let remains = self.remains(record, &table);
            left.extend(remains.into_iter().map(|entry| (component, entry.into(), entry.name.clone())));
        }
        for (component, target, name) in &left {
            let survivor =
                || Survivor { component: (*component).clone(), pid: target.pid, name: name.clone() };
            found.entry(target.clone()).or_insert_with(survivor);
        }
        Ok(left.into_iter().map(|(_, target, name)| (target, name)).collect())
    }

    /// What a record names, as far as it is of this state directory: a copied record names another daemon's.
    fn remains<'t>(&self, record: &Record, table: &'t Table) -> Vec<&'t Entry> {
        let of_others = |entry: &&Entry| match entry.marks().component.as_deref() {
            Some(component) => self.mark.parse(component).is_some(),
            None => record.dir.as_ref().is_none_or(|dir| self.mark.contains(dir)),
        };
        remains::of(record, table, &self.kept.pids).into_iter().filter(of_others).collect()
    }

    /// Processes that carry this state directory's mark, record or not.
    fn marked<'t>(&'t self, table: &'t Table) -> impl Iterator<Item = (ComponentId, &'t Entry)> {
        let ourselves = remains::ourselves(table);
        table
            .iter()
            .filter(move |entry| !ourselves.contains(&entry.pid) && !self.kept.has(table, entry))
            .filter_map(|entry| Some((self.mark.parse(entry.marks().component.as_deref()?)?, entry)))
            .filter(|(component, _)| !self.untouched.contains(&component.chain))
    }
}
