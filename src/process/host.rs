//! The tree's view of the process adapter: births, deaths, signals, and reaping.
//!
//! Each call that touches the kernel's slower sides (fork, files, `/proc`) runs on a thread that may wait; waiting for an exit
//! is one readiness event on a pidfd.

use super::birth::Newborn;
use super::births::Births;
use super::cgroup::{Cgroup, CgroupRoot};
use super::ledger::{Ledger, Phase, Record};
use super::leftovers::{LINGER, Left, Leftovers};
use super::life::Life;
use super::limits::{ComponentLimits, Limiter};
use super::mark::{self, StateMark};
use super::reap::{self, Targets};
use super::spawn;
use super::strays::Strays;
use super::table::SharedTable;
use super::{adoption, children, identity, kernel_log, orphans, remains};
use crate::fault;
use crate::files::{self, FileError};
use crate::layout::Layout;
use crate::logs::{self, Limits, LogKeeper};
use crate::off_thread::off_thread;
use async_trait::async_trait;
use berth_actors::host::{Accounted, ExitStatus, Processes, SpawnError, Spawned, Stray, Survivor};
use berth_actors::identity::{ComponentId, Identity};
use berth_actors::spec::{ProcessSpec, Signal};
use rustix::fd::AsFd;
use rustix::process::{WaitId, WaitIdOptions, kill_process, waitid};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Exit statuses kept after the reap: far more than anyone asks for again, and nothing against a descriptor each.
const REMEMBERED: usize = 256;

/// The processes of one state directory. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ProcessHost {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) ledger: Ledger,
    pub(super) mark: StateMark,
    pub(super) cgroups: Option<CgroupRoot>,
    pub(super) limiter: Limiter,
    births: Births,
    leftovers: Leftovers,
    table: SharedTable,
    pub(super) logs: LogKeeper,
    /// What an earlier daemon left and the tree has not taken yet.
    pub(super) left: Mutex<adoption::Left>,
    pub(super) strays: Strays,
    /// Every process that was spawned or adopted and is not buried.
    lives: Mutex<HashMap<Identity, Arc<Life>>>,
    /// How the latest ones ended: a status may be asked for again after the reap.
    ended: Mutex<VecDeque<(Identity, ExitStatus)>>,
}

impl ProcessHost {
    /// Creates the ledger's directory, looks for a cgroup to work in, and watches what an earlier daemon left from here on.
    /// Blocking; once, at the daemon's start, in the runtime.
    pub fn new(layout: &Layout) -> Result<Self, FileError> {
        Self::limited(layout, Limits::default(), ComponentLimits::default(), false)
    }

    /// The same with other limits for the components' logs, and limits for the components themselves. `bound`: no component runs as
    /// root.
    pub fn limited(
        layout: &Layout,
        limits: Limits,
        of_components: ComponentLimits,
        bound: bool,
    ) -> Result<Self, FileError> {
        kernel_log::follow();
        let ledger = Ledger::open(layout.ledger())?;
        let mark = StateMark::of(layout);
        let cgroups = CgroupRoot::find(&mark);
        let left = Mutex::new(adoption::Left::of(&ledger, &mark)?);
        let (births, table, logs) = (Births::new(bound), SharedTable::default(), LogKeeper::new(limits));
        let (leftovers, lives, ended) = (Leftovers::default(), Mutex::default(), Mutex::default());
        let (strays, limiter) = (Strays::default(), Limiter::new(of_components));
        let shared = Shared {
            ledger,
            mark,
            cgroups,
            limiter,
            births,
            leftovers,
            table,
            logs,
            left,
            strays,
            lives,
            ended,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    #[cfg(test)]
    pub(super) fn has_cgroups(&self) -> bool {
        self.shared.cgroups.is_some()
    }

    #[cfg(test)]
    pub(super) fn without_cgroups(layout: &Layout) -> Result<Self, FileError> {
        let mut host = Self::new(layout)?;
        if let Some(shared) = Arc::get_mut(&mut host.shared) {
            shared.cgroups = None;
        }
        Ok(host)
    }

    /// Removes at once what the dead left in files. Once, when everything is down.
    pub async fn tidy(&self) {
        self.off_thread(|shared| shared.leftovers.clear(&shared.ledger)).await;
    }

    /// The reap of a process that left nobody, done on the spot: a successor waits for it. `None` where it takes more than a
    /// look at the kernel's own memory.
    fn reap_alone(&self, component: &ComponentId, identity: &Identity) -> Option<()> {
        let life = Arc::clone(self.shared.lives().get(identity)?);
        let record = life.record.as_ref().filter(|record| record.component == *component)?;
        life.status()?;
        let left_nobody = match &record.cgroup {
            // One that ran out of memory says so for ever: its successor gets another.
            Some(_) if life.status() == Some(ExitStatus::OutOfMemory) => false,
            Some(cgroup) => Cgroup::at(cgroup.clone()).is_empty(),
            None => identity::is_child(identity) && orphans::none(),
        };
        if !left_nobody || !life.try_bury()? {
            return None;
        }
        fault::point("reap-buried");
        self.shared.lives().remove(identity);
        self.shared.remember(&life);
        let left = Left {
            address: life.address.get().copied().or_else(|| record.known_address()),
            ..Left::of(record)
        };
        if self.shared.leftovers.leave(component.clone(), left) {
            let host = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(LINGER).await;
                host.tidy().await;
            });
        }
        Some(())
    }

    async fn off_thread<T: Send + 'static>(&self, work: impl FnOnce(&Shared) -> T + Send + 'static) -> T {
        let shared = Arc::clone(&self.shared);
        off_thread(move || work(&shared)).await
    }

    /// The watched life of `identity`, adopted now if nobody did before; `None` when it is gone.
    async fn life(&self, identity: &Identity) -> io::Result<Option<Arc<Life>>> {
        if let Some(life) = self.shared.lives().get(identity) {
            return Ok(Some(Arc::clone(life)));
        }
        let identity = identity.clone();
        self.off_thread(move |shared| shared.adopt(&identity)).await
    }
}

#[async_trait]
impl Processes for ProcessHost {
    async fn survivors(&self) -> BTreeSet<ComponentId> {
        self.off_thread(Shared::survivors).await
    }

    async fn kill_survivor(&self, component: &ComponentId) -> Result<(), String> {
        let component = component.clone();
        self.off_thread(move |shared| shared.kill_survivor(&component)).await
    }

    async fn adopt(&self, component: &ComponentId) -> Result<Option<Survivor>, String> {
        let component = component.clone();
        Ok(self.off_thread(move |shared| shared.take_over(&component)).await)
    }

    async fn reap_strays(&self, accounted: &Accounted) -> Result<Vec<String>, String> {
        let accounted = accounted.clone();
        self.off_thread(move |shared| shared.reap_strays(&accounted)).await
    }

    fn remarks(&self) -> Vec<String> {
        self.shared.limiter.remarks()
    }

    fn strays(&self) -> Vec<Stray> {
        self.shared.strays.list()
    }

    async fn strays_ended(&self, component: &ComponentId) {
        self.shared.strays.ended(component).await;
    }

    async fn record_address(&self, component: &ComponentId, identity: &Identity, address: SocketAddr) {
        let (component, identity) = (component.clone(), identity.clone());
        self.off_thread(move |shared| shared.record_address(&component, &identity, address)).await;
    }

    async fn spawn(&self, component: &ComponentId, spec: &ProcessSpec) -> Result<Spawned, SpawnError> {
        let turn = self.shared.births.turn().await;
        let (shared, component, spec) = (Arc::clone(&self.shared), component.clone(), spec.clone());
        turn.run(Box::new(move || shared.spawn(&component, &spec))).await
    }

    async fn exited(&self, identity: &Identity) -> ExitStatus {
        // One such wait lasts as long as its process does: it holds no more than it must.
        let watched = self.shared.lives().get(identity).map(Arc::clone);
        if let Some(life) = watched {
            return life.exited().await;
        }
        match Box::pin(self.life(identity)).await {
            Ok(Some(life)) => life.exited().await,
            Ok(None) => self.shared.ended(identity).unwrap_or(ExitStatus::Unknown),
            Err(error) => {
                tracing::error!(%identity, %error, "cannot watch a process; it is taken for dead and will be reaped");
                ExitStatus::Unknown
            }
        }
    }

    async fn signal(&self, identity: &Identity, signal: Signal) -> Result<(), String> {
        let life = self.life(identity).await.map_err(|error| format!("{identity}: {error}"))?;
        let sent = life.map_or(Ok(()), |life| life.signal(signal));
        fault::point("stop-signalled");
        sent.map_err(|error| format!("{signal:?} to {identity}: {error}"))
    }

    async fn reap(&self, component: &ComponentId, identity: &Identity) -> Result<(), String> {
        fault::point("exit-seen");
        if self.reap_alone(component, identity).is_some() {
            return Ok(());
        }
        let (component, identity) = (component.clone(), identity.clone());
        self.off_thread(move |shared| shared.reap(&component, &identity)).await
    }

    async fn log_tail(&self, log: &Path, log_offset: u64, lines: usize) -> Vec<String> {
        let log = log.to_owned();
        self.off_thread(move |_| logs::text_of_last(&log, log_offset, lines).unwrap_or_default()).await
    }
}

impl Shared {
    pub(super) fn lives(&self) -> MutexGuard<'_, HashMap<Identity, Arc<Life>>> {
        self.lives.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, identity: &Identity) -> Option<ExitStatus> {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.iter().find(|(of, _)| of == identity).map(|(_, status)| *status)
    }

    fn remember(&self, life: &Life) {
        let Some(status) = life.status() else { return };
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.truncate(REMEMBERED - 1);
        ended.push_front((life.identity.clone(), status));
    }

    fn adopt(&self, identity: &Identity) -> io::Result<Option<Arc<Life>>> {
        let mut lives = self.lives();
        if let Some(life) = lives.get(identity) {
            return Ok(Some(Arc::clone(life)));
        }
        let Some(life) = Life::adopt(identity, None)?.map(Arc::new) else { return Ok(None) };
        lives.insert(identity.clone(), Arc::clone(&life));
        Ok(Some(life))
    }

    fn spawn(&self, component: &ComponentId, spec: &ProcessSpec) -> Result<Spawned, SpawnError> {
        self.refuse_a_second(component)?;
        let earlier = self.leftovers.take_up(component);
        let earlier = earlier.or_else(|| self.ledger.read(component).as_ref().map(Left::of));
        let log = files::open_log(&spec.output, spec.user).map_err(retry)?;
        let log_offset = self.logs.begin(&spec.output).map_err(retry)?;
        let (cgroup, inside) = self
            .cgroups
            .as_ref()
            .and_then(|root| {
                let entered = root.enter(component);
                entered
                    .inspect_err(|error| tracing::warn!(%component, %error, "starting without a cgroup"))
                    .ok()
            })
            .unzip();
        if self.limiter.limits_any() {
            self.limiter.apply(component, self.cgroups.as_ref(), cgroup.as_ref());
        }
        let mut record = Record {
            component: component.clone(),
            token: mark::new_token(),
            program: spec.program.canonicalize().unwrap_or_else(|_| spec.program.clone()),
            dir: spec.dir.canonicalize().ok().filter(|dir| self.mark.contains(dir)),
            cgroup: cgroup.as_ref().map(|cgroup| cgroup.path().to_owned()),
            digest: spec.digest(),
            log: spec.output.clone(),
            log_offset,
            address: None,
            previous: earlier.as_ref().and_then(|left| left.address),
            phase: Phase::Intent,
        };
        self.ledger.write(&record).map_err(retry)?;
        fault::point("spawn-intent");
        let marks = spawn::Marks { token: &record.token, component: &self.mark.component(component) };
        let limits = self.limiter.of(component);
        let born = spawn::start(spec, &log, inside.as_ref().map(AsFd::as_fd), limits, &marks)
            .and_then(|newborn| self.watch(newborn, &mut record));
        born.map(|identity| Spawned { identity, log_offset }).inspect_err(|_| {
            if let Some(cgroup) = &cgroup {
                cgroup.remove();
            }
            let _ = match earlier.and_then(|left| left.record_beside(record)) {
                Some(closed) => self.ledger.write(&closed),
                None => self.ledger.remove(component),
            };
        })
    }

    /// At most one process per component, whatever the tree believes.
    fn refuse_a_second(&self, component: &ComponentId) -> Result<(), SpawnError> {
        if let Some(stray) = self.strays.of(component) {
            return Err(SpawnError::Retry(format!("{component}: {stray}")));
        }
        let mut lives = self.lives();
        if let Some(earlier) = self.left.lock().unwrap_or_else(PoisonError::into_inner).alive(component) {
            return Err(SpawnError::Retry(format!("{component}: {earlier} of an earlier daemon still runs")));
        }
        let of_component =
            |life: &Life| life.record.as_ref().is_some_and(|record| record.component == *component);
        if let Some(life) = lives.values().find(|life| of_component(life) && !life.is_buried()) {
            return Err(SpawnError::Retry(format!("{component}: {} has not been reaped yet", life.identity)));
        }
        lives.retain(|_, life| !of_component(life));
        Ok(())
    }

    /// Completes the record of a child and watches it; a child that cannot be watched is killed.
    fn watch(&self, newborn: Newborn, record: &mut Record) -> Result<Identity, SpawnError> {
        fault::point("spawn-born");
        let pid = newborn.pid;
        self.try_watch(newborn, record).map_err(|error| {
            if let Some(raw_pid) = identity::raw_pid(pid) {
                children::forget(pid, || {
                    let _ = kill_process(raw_pid, rustix::process::Signal::KILL);
                    let _ = waitid(WaitId::Pid(raw_pid), WaitIdOptions::EXITED);
                });
            }
            retry(format!("{}: started but cannot be watched: {error}", record.component))
        })
    }

    fn try_watch(&self, newborn: Newborn, record: &mut Record) -> io::Result<Identity> {
        // It cannot be missing: the child stays at least a zombie until it is waited for.
        let identity = identity::of(newborn.pid).ok_or(io::ErrorKind::NotFound)?;
        if !newborn.in_cgroup {
            record.cgroup = None;
        }
        record.phase = Phase::Running(identity.clone());
        let life = Life::new(identity.clone(), Some(record.to_recognise()), newborn.pidfd)?;
        if let Err(error) = self.ledger.write(record) {
            // The intent on disk carries the token, by which the next daemon finds the process all the same.
            tracing::warn!(component = %record.component, %error, "the record stays an intent");
        }
        fault::point("spawn-recorded");
        self.lives().insert(identity.clone(), Arc::new(life));
        Ok(identity)
    }

    fn reap(&self, component: &ComponentId, identity: &Identity) -> Result<(), String> {
        let life = self.lives().get(identity).map(Arc::clone);
        let Some(record) =
            life.as_ref().and_then(|life| life.record.clone()).or_else(|| self.ledger.read(component))
        else {
            return Ok(());
        };
        // The record of a later life is none of this reap's business.
        if life.as_ref().is_some_and(|life| life.is_buried()) || record.identity() != Some(identity) {
            return Ok(());
        }
        let failed = |error: &dyn Display| format!("cannot reap {component}: {error}");
        let cgroup = record.cgroup.clone().map(Cgroup::at);
        reap::kill_all(reap::DEADLINE, || self.remains(&record, identity, cgroup.as_ref()))
            .map_err(|error| failed(&error))?;
        fault::point("reap-killed");
        // Of two reaps at once only one goes on: the other might meet the next life's record.
        let is_first = life.is_none_or(|life| {
            // Whoever still waits for its exit holds it; its descriptor goes with the last of them.
            self.lives().remove(identity);
            self.remember(&life);
            life.bury()
        });
        if !is_first {
            return Ok(());
        }
        if let Some(cgroup) = cgroup {
            cgroup.remove();
        }
        fault::point("reap-buried");
        self.ledger.close(component, Some(identity)).map_err(|error| failed(&error))
    }

    /// A cgroup has the last word: nothing born in one leaves it. Without one, everything the process table can tell.
    fn remains(&self, record: &Record, identity: &Identity, cgroup: Option<&Cgroup>) -> io::Result<Targets> {
        if let Some(cgroup) = cgroup {
            let mut left = cgroup.kill()?;
            if identity::is_alive(identity) {
                // Only an administrator could have moved it out.
                left.entry(identity.into()).or_insert_with(|| record.component.to_string());
            }
            return Ok(left);
        }
        remains::search(record, &children::all_but(identity.pid), || self.table.fresh())
    }
}

fn retry(error: impl Display) -> SpawnError {
    SpawnError::Retry(error.to_string())
}
