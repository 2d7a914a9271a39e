//! A scripted host for tests: blueprints, processes and ports that do what the test says, when it says so.
//!
//! Nothing here starts a process, opens a socket or looks at a clock. Tests drive it with paused time.

mod world;

pub use world::FakeWorld;

use crate::host::{
    Accounted, Blueprint, Context, ExitStatus, GateError, Guard, Listeners, Listens, PrepareError, Processes,
    Running, SpawnError, Spawned, Stray, Survivor, WaitNote,
};
use crate::identity::{ComponentId, Identity};
use crate::policy::RestartPolicy;
use crate::spec::{ProcessSpec, Role, Seam, Signal, Step, StopPlan};
use async_trait::async_trait;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// What the host was asked to do, in order: `spawn demo/kine`, `signal demo/kine Term`, `reap demo/kine`.
#[derive(Debug, Clone, Default)]
pub struct Diary(Arc<Mutex<Vec<String>>>);

impl Diary {
    pub fn write(&self, line: impl Into<String>) {
        if let Ok(mut lines) = self.0.lock() {
            lines.push(line.into());
        }
    }

    /// Every line, in the order of what happened.
    pub fn all(&self) -> Vec<String> {
        self.0.lock().map(|lines| lines.clone()).unwrap_or_default()
    }

    /// The lines that start with `verb`, without it.
    pub fn of(&self, verb: &str) -> Vec<String> {
        self.all()
            .iter()
            .filter_map(|line| line.strip_prefix(verb)?.strip_prefix(' ').map(str::to_owned))
            .collect()
    }
}

#[derive(Debug)]
struct Process {
    component: ComponentId,
    pid: u32,
    digest: String,
    address: Option<SocketAddr>,
    exit: watch::Sender<Option<ExitStatus>>,
    deaf: bool,
    /// It has an owner among the living daemons.
    owned: bool,
    reaped: bool,
}

/// Processes that exist only in the test.
#[derive(Debug, Clone, Default)]
pub struct FakeHost {
    pub diary: Diary,
    processes: Arc<Mutex<BTreeMap<u32, Process>>>,
    deaf: Arc<Mutex<Vec<String>>>,
    /// Components whose processes outlive SIGKILL.
    stuck: Arc<Mutex<BTreeSet<String>>>,
    silent: watch::Sender<Vec<String>>,
    strays: watch::Sender<Vec<Stray>>,
    /// Processes that no record names as the main one of their component.
    abandoned: Arc<Mutex<BTreeSet<u32>>>,
    /// How many daemons have died on this host, and how many had when this one began.
    deaths: Arc<AtomicU64>,
    born_after: u64,
}

impl FakeHost {
    /// From now on, processes of `component` open no port, or do so at last.
    pub fn silence(&self, component: &str, silent: bool) {
        self.silent.send_modify(|components| {
            components.retain(|other| other != component);
            if silent {
                components.push(component.to_owned());
            }
        });
    }

    /// The daemon dies at once: whatever it still asks is never answered, and nobody owns its processes any more.
    pub fn crash(&self) {
        self.deaths.fetch_add(1, Ordering::SeqCst);
        if let Ok(mut processes) = self.processes.lock() {
            processes.values_mut().for_each(|process| process.owned = false);
        }
    }

    /// The same host as the next daemon sees it.
    #[must_use]
    pub fn reborn(&self) -> Self {
        Self { born_after: self.deaths.load(Ordering::SeqCst), ..self.clone() }
    }

    /// Never resolves for a daemon that is dead.
    pub(super) async fn alive(&self) {
        if self.deaths.load(Ordering::SeqCst) != self.born_after {
            std::future::pending::<()>().await;
        }
    }

    /// Every process that has not ended.
    pub fn live(&self) -> Vec<String> {
        let processes = self.processes.lock().map(|processes| {
            let live = processes.values().filter(|process| process.exit.borrow().is_none());
            live.map(|process| process.component.to_string()).collect()
        });
        processes.unwrap_or_default()
    }

    /// From now on, processes of `component` ignore their stop signal.
    pub fn deafen(&self, component: &str) {
        if let Ok(mut deaf) = self.deaf.lock() {
            deaf.push(component.to_owned());
        }
    }

    /// Nobody knows of the latest process of `component` that it is its main one: it is adopted by nobody.
    pub fn abandon(&self, component: &str) {
        if let (Some(pid), Ok(mut abandoned)) = (self.pid(component), self.abandoned.lock()) {
            abandoned.insert(pid);
        }
    }

    fn is_abandoned(&self, process: &Process) -> bool {
        self.abandoned.lock().is_ok_and(|abandoned| abandoned.contains(&process.pid))
    }

    /// Where a process listens, as far as it was written down.
    pub fn address(&self, pid: u32) -> Option<SocketAddr> {
        self.processes.lock().ok()?.get(&pid)?.address
    }

    /// Where `component` listens was never written down.
    pub fn forget_address(&self, component: &str) {
        let Ok(mut processes) = self.processes.lock() else { return };
        for process in processes.values_mut().filter(|process| process.component.to_string() == component) {
            process.address = None;
        }
    }

    /// From now on, processes of `component` outlive every signal, or do so no longer.
    pub fn stick(&self, component: &str, stuck: bool) {
        if !stuck {
            self.end_strays(component);
        }
        if let Ok(mut components) = self.stuck.lock() {
            if stuck {
                components.insert(component.to_owned());
            } else {
                components.remove(component);
            }
        }
    }

    /// What outlived SIGKILL is gone at last.
    fn end_strays(&self, component: &str) {
        let of_component = |stray: &Stray| stray.component.to_string() == component;
        let ended: Vec<u32> =
            self.strays().iter().filter(|stray| of_component(stray)).map(|stray| stray.pid).collect();
        for pid in ended {
            self.exit(pid, ExitStatus::Signal(9));
        }
        self.strays.send_modify(|strays| strays.retain(|stray| !of_component(stray)));
    }

    fn is_stuck(&self, component: &ComponentId) -> bool {
        self.stuck.lock().is_ok_and(|stuck| stuck.contains(&component.to_string()))
    }

    /// The pid of the latest live process of `component`.
    pub fn pid(&self, component: &str) -> Option<u32> {
        let processes = self.processes.lock().ok()?;
        let of_component = |process: &Process| process.component.to_string() == component;
        processes
            .iter()
            .rev()
            .find(|(_, process)| of_component(process) && process.exit.borrow().is_none())
            .map(|(pid, _)| *pid)
    }

    /// A process ends, unasked.
    pub fn exit(&self, pid: u32, status: ExitStatus) {
        if let Ok(processes) = self.processes.lock()
            && let Some(process) = processes.get(&pid)
        {
            process.exit.send_replace(Some(status));
        }
    }
}

fn fake_identity(pid: u32) -> Identity {
    Identity { boot_id: "fake".into(), pid, start_time: u64::from(pid) }
}

#[async_trait]
impl Processes for FakeHost {
    async fn survivors(&self) -> BTreeSet<ComponentId> {
        self.alive().await;
        let left = |process: &&Process| {
            !process.owned
                && !process.reaped
                && process.exit.borrow().is_none()
                && !self.is_abandoned(process)
        };
        let found = self.processes.lock().map(|processes| {
            processes.values().filter(left).map(|process| process.component.clone()).collect()
        });
        found.unwrap_or_default()
    }

    async fn kill_survivor(&self, component: &ComponentId) -> Result<(), String> {
        self.alive().await;
        self.diary.write(format!("kill {component}"));
        if let Some(pid) = self.pid(&component.to_string()) {
            self.exit(pid, ExitStatus::Signal(9));
        }
        Ok(())
    }

    async fn adopt(&self, component: &ComponentId) -> Result<Option<Survivor>, String> {
        self.alive().await;
        let mut processes = self.processes.lock().map_err(|error| error.to_string())?;
        let left = processes.iter_mut().rev().find(|(_, process)| {
            process.component == *component
                && !process.owned
                && !process.reaped
                && !self.is_abandoned(process)
        });
        Ok(left.map(|(pid, process)| {
            let alive = process.exit.borrow().is_none();
            self.diary.write(format!("adopt {component}"));
            process.owned = true;
            process.reaped = !alive;
            let (log, log_offset) = (PathBuf::from("/fake.log"), 0);
            let running =
                Running { identity: fake_identity(*pid), address: process.address, log, log_offset };
            Survivor { running, digest: process.digest.clone(), alive }
        }))
    }

    async fn reap_strays(&self, accounted: &Accounted) -> Result<Vec<String>, String> {
        self.alive().await;
        let mut processes = self.processes.lock().map_err(|error| error.to_string())?;
        let strays = processes.values_mut().filter(|process| {
            let is_stray = self.is_abandoned(process) || !accounted.for_component(&process.component);
            is_stray && !process.owned && !process.reaped
        });
        let mut ended = Vec::new();
        for process in strays {
            self.diary.write(format!("stray {}", process.component));
            if self.is_stuck(&process.component) {
                let (component, pid) = (process.component.clone(), process.pid);
                self.strays.send_modify(|strays| strays.push(Stray { component, pid, name: "fake".into() }));
                continue;
            }
            process.reaped = true;
            process.exit.send_if_modified(|exit| exit.replace(ExitStatus::Signal(9)).is_none());
            ended.push(process.component.to_string());
        }
        Ok(ended)
    }

    fn strays(&self) -> Vec<Stray> {
        self.strays.borrow().clone()
    }

    async fn strays_ended(&self, component: &ComponentId) {
        let none = |strays: &Vec<Stray>| strays.iter().all(|stray| stray.component != *component);
        if self.strays.subscribe().wait_for(none).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    async fn record_address(&self, _component: &ComponentId, identity: &Identity, address: SocketAddr) {
        self.alive().await;
        if let Ok(mut processes) = self.processes.lock()
            && let Some(process) = processes.get_mut(&identity.pid)
        {
            process.address = Some(address);
        }
    }

    async fn spawn(&self, component: &ComponentId, spec: &ProcessSpec) -> Result<Spawned, SpawnError> {
        self.alive().await;
        self.diary.write(format!("spawn {component}"));
        let deaf = self.deaf.lock().is_ok_and(|deaf| deaf.contains(&component.to_string()));
        if self.pid(&component.to_string()).is_some() {
            self.diary.write(format!("twice {component}"));
        }
        let mut processes = self.processes.lock().map_err(|_| SpawnError::Retry("poisoned".into()))?;
        let pid = u32::try_from(processes.len()).unwrap_or(0) + 1;
        let process = Process {
            component: component.clone(),
            pid,
            digest: spec.digest(),
            address: None,
            exit: watch::Sender::new(None),
            deaf,
            owned: true,
            reaped: false,
        };
        processes.insert(pid, process);
        Ok(Spawned { identity: fake_identity(pid), log_offset: 0 })
    }

    async fn exited(&self, identity: &Identity) -> ExitStatus {
        self.alive().await;
        let receiver = self
            .processes
            .lock()
            .ok()
            .and_then(|processes| processes.get(&identity.pid).map(|process| process.exit.subscribe()));
        match receiver {
            Some(mut exit) => exit
                .wait_for(Option::is_some)
                .await
                .ok()
                .and_then(|status| *status)
                .unwrap_or(ExitStatus::Unknown),
            None => ExitStatus::Unknown,
        }
    }

    async fn signal(&self, identity: &Identity, signal: Signal) -> Result<(), String> {
        self.alive().await;
        let processes = self.processes.lock().map_err(|error| error.to_string())?;
        if let Some(process) = processes.get(&identity.pid) {
            self.diary.write(format!("signal {} {signal:?}", process.component));
            if !process.deaf && !self.is_stuck(&process.component) {
                process.exit.send_replace(Some(ExitStatus::Code(0)));
            }
        }
        Ok(())
    }

    async fn reap(&self, component: &ComponentId, identity: &Identity) -> Result<(), String> {
        self.alive().await;
        self.diary.write(format!("reap {component}"));
        if self.is_stuck(component) {
            return Err(format!("still alive 5s after SIGKILL: {component} (pid {})", identity.pid));
        }
        self.exit(identity.pid, ExitStatus::Signal(9));
        if let Ok(mut processes) = self.processes.lock()
            && let Some(process) = processes.get_mut(&identity.pid)
        {
            process.reaped = true;
        }
        Ok(())
    }

    async fn log_tail(&self, _log: &Path, _log_offset: u64, _lines: usize) -> Vec<String> {
        self.alive().await;
        vec!["last words".to_owned()]
    }
}

#[async_trait]
impl Listeners for FakeHost {
    async fn listening(&self, identity: &Identity) -> Result<SocketAddr, String> {
        self.alive().await;
        let component =
            self.processes.lock().ok().and_then(|processes| {
                processes.get(&identity.pid).map(|process| process.component.to_string())
            });
        let speaks = |silent: &Vec<String>| !component.as_ref().is_some_and(|name| silent.contains(name));
        self.silent.subscribe().wait_for(speaks).await.map_err(|error| error.to_string())?;
        let port = u16::try_from(identity.pid).unwrap_or(0) + 4000;
        Ok(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    async fn listening_at(&self, identity: &Identity, address: SocketAddr) -> Result<SocketAddr, String> {
        self.listening(identity).await.map(|_| address)
    }
}

/// A component whose gate the test opens and closes.
#[derive(Debug, Clone)]
pub struct FakeComponent {
    open: watch::Sender<bool>,
    listens: Listens,
    obstacle: Arc<Mutex<Option<PrepareError>>>,
    previous: Arc<Mutex<Vec<Option<SocketAddr>>>>,
    /// `None`: how to start it is not known.
    args: Arc<Mutex<Option<Vec<String>>>>,
    /// So many of the next starts hang, for the sake of the step named.
    hangs: Arc<Mutex<(u32, &'static str)>>,
}

impl FakeComponent {
    pub fn new() -> Self {
        let (obstacle, previous) = (Arc::default(), Arc::default());
        let args = Arc::new(Mutex::new(Some(Vec::new())));
        let (open, hangs) = (watch::Sender::new(true), Arc::default());
        Self { open, listens: Listens::OneTcp, obstacle, previous, args, hangs }
    }

    /// What stands in the way of the next preparations.
    pub fn set_obstacle(&self, obstacle: Option<PrepareError>) {
        if let Ok(mut current) = self.obstacle.lock() {
            *current = obstacle;
        }
    }

    /// What it is started with from now on; `None`: nobody knows.
    pub fn set_args(&self, args: Option<&[&str]>) {
        if let Ok(mut current) = self.args.lock() {
            *current = args.map(|args| args.iter().map(|arg| (*arg).to_owned()).collect());
        }
    }

    /// The previous address each preparation was told.
    pub fn previous_addresses(&self) -> Vec<Option<SocketAddr>> {
        self.previous.lock().map(|previous| previous.clone()).unwrap_or_default()
    }

    /// It gets no port to find, but this one.
    #[must_use]
    pub fn at(self, address: SocketAddr) -> Self {
        Self { listens: Listens::Fixed(address), ..self }
    }

    /// So many of its next gates find a hang, and blame `step` for it.
    pub fn hang(&self, times: u32, step: &'static str) {
        if let Ok(mut hangs) = self.hangs.lock() {
            *hangs = (times, step);
        }
    }

    fn next_hang(&self) -> Option<&'static str> {
        let mut hangs = self.hangs.lock().ok()?;
        hangs.0 = hangs.0.checked_sub(1)?;
        Some(hangs.1)
    }

    /// Gates of later starts and rechecks open only while this is true.
    pub fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }
}

impl Default for FakeComponent {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Blueprint for FakeComponent {
    async fn prepare(&self, context: &Context, _note: &WaitNote) -> Result<ProcessSpec, PrepareError> {
        if let Ok(mut previous) = self.previous.lock() {
            previous.push(context.previous_address);
        }
        if let Ok(Some(obstacle)) = self.obstacle.lock().map(|obstacle| obstacle.clone()) {
            return Err(obstacle);
        }
        self.spec(context)
    }

    fn spec(&self, _context: &Context) -> Result<ProcessSpec, PrepareError> {
        if self.args.lock().is_ok_and(|args| args.is_none()) {
            return Err(PrepareError::Fatal("it is not known how to start it".to_owned()));
        }
        Ok(ProcessSpec {
            program: PathBuf::from("/fake"),
            arg0: None,
            args: self.args.lock().map(|args| args.clone()).unwrap_or_default().unwrap_or_default(),
            env: BTreeMap::new(),
            start_env: BTreeMap::new(),
            dir: PathBuf::from("/"),
            output: PathBuf::from("/fake.log"),
            user: None,
            ready: None,
        })
    }

    fn listens(&self) -> Listens {
        self.listens
    }

    async fn ready(&self, _running: &Running, note: &WaitNote) -> Result<(), GateError> {
        if let Some(step) = self.next_hang() {
            return Err(GateError::Upstream {
                step: step.to_owned(),
                reason: "hung in its start".to_owned(),
            });
        }
        note.say("the test to open its gate");
        let mut open = self.open.subscribe();
        open.wait_for(|open| *open).await.map(|_| ()).map_err(|error| GateError::Hopeless(error.to_string()))
    }
}

/// A guard that gives the verdict the test sets.
#[derive(Debug, Clone, Default)]
pub struct FakeGuard {
    verdict: Arc<Mutex<Option<PrepareError>>>,
    losses: Arc<tokio::sync::Notify>,
}

impl FakeGuard {
    pub fn set(&self, verdict: Option<PrepareError>) {
        if let Ok(mut current) = self.verdict.lock() {
            *current = verdict;
        }
    }

    /// Why it refuses, if it does.
    pub fn verdict(&self) -> Option<String> {
        self.verdict.lock().ok()?.as_ref().map(ToString::to_string)
    }

    /// Its hold is lost, if anybody waits for that.
    pub fn lose(&self) {
        self.losses.notify_waiters();
    }
}

#[async_trait]
impl Guard for FakeGuard {
    async fn check(&self, _note: &WaitNote) -> Result<(), PrepareError> {
        match self.verdict.lock().map(|verdict| verdict.clone()) {
            Ok(Some(error)) => Err(error),
            _ => Ok(()),
        }
    }

    async fn lost(&self) {
        self.losses.notified().await;
    }
}

/// A plain step with a fake component, TERM, and rest_for_one towards everything before it.
pub fn step(name: &str, component: &FakeComponent) -> Step {
    Step {
        component: name.to_owned(),
        role: Role::Plain,
        seam: Seam::Open,
        blueprint: Arc::new(component.clone()),
        restart: RestartPolicy::default(),
        stop: StopPlan { signal: Signal::Term, deadline: Duration::from_secs(5), repeat_after: None },
        start_deadline: Duration::from_secs(30),
        reactions: BTreeMap::new(),
        stand_in: None,
    }
}
