//! A scripted host for tests: blueprints, processes and ports that do what the test says, when it says so.
//!
//! Nothing here starts a process, opens a socket or looks at a clock. Tests drive it with paused time.

mod world;

pub use world::FakeWorld;

use crate::host::{
    Blueprint, Context, ExitStatus, GateError, Guard, Listeners, Listens, PrepareError, Processes, Running,
    SpawnError, Spawned, WaitNote,
};
use crate::identity::{ComponentId, Identity};
use crate::policy::RestartPolicy;
use crate::spec::{ProcessSpec, Role, Seam, Signal, Step, StopPlan};
use async_trait::async_trait;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
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

    /// The lines that start with `verb`, without it.
    pub fn of(&self, verb: &str) -> Vec<String> {
        let lines = self.0.lock().map(|lines| lines.clone()).unwrap_or_default();
        lines
            .iter()
            .filter_map(|line| line.strip_prefix(verb)?.strip_prefix(' ').map(str::to_owned))
            .collect()
    }
}

#[derive(Debug)]
struct Process {
    component: ComponentId,
    exit: watch::Sender<Option<ExitStatus>>,
    deaf: bool,
}

/// Processes that exist only in the test.
#[derive(Debug, Clone, Default)]
pub struct FakeHost {
    pub diary: Diary,
    processes: Arc<Mutex<BTreeMap<u32, Process>>>,
    deaf: Arc<Mutex<Vec<String>>>,
    silent: watch::Sender<Vec<String>>,
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

#[async_trait]
impl Processes for FakeHost {
    async fn spawn(&self, component: &ComponentId, _spec: &ProcessSpec) -> Result<Spawned, SpawnError> {
        self.diary.write(format!("spawn {component}"));
        let deaf = self.deaf.lock().is_ok_and(|deaf| deaf.contains(&component.to_string()));
        if self.pid(&component.to_string()).is_some() {
            self.diary.write(format!("twice {component}"));
        }
        let mut processes = self.processes.lock().map_err(|_| SpawnError::Retry("poisoned".into()))?;
        let pid = u32::try_from(processes.len()).unwrap_or(0) + 1;
        processes.insert(pid, Process { component: component.clone(), exit: watch::Sender::new(None), deaf });
        let identity = Identity { boot_id: "fake".into(), pid, start_time: u64::from(pid) };
        Ok(Spawned { identity, log_offset: 0 })
    }

    async fn exited(&self, identity: &Identity) -> ExitStatus {
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
        let processes = self.processes.lock().map_err(|error| error.to_string())?;
        if let Some(process) = processes.get(&identity.pid) {
            self.diary.write(format!("signal {} {signal:?}", process.component));
            if !process.deaf {
                process.exit.send_replace(Some(ExitStatus::Code(0)));
            }
        }
        Ok(())
    }

    async fn reap(&self, component: &ComponentId, identity: &Identity) -> Result<(), String> {
        self.diary.write(format!("reap {component}"));
        self.exit(identity.pid, ExitStatus::Signal(9));
        Ok(())
    }

    async fn log_tail(&self, _log: &Path, _log_offset: u64, _lines: usize) -> Vec<String> {
        vec!["last words".to_owned()]
    }
}

#[async_trait]
impl Listeners for FakeHost {
    async fn listening(&self, identity: &Identity) -> Result<SocketAddr, String> {
        let component =
            self.processes.lock().ok().and_then(|processes| {
                processes.get(&identity.pid).map(|process| process.component.to_string())
            });
        let speaks = |silent: &Vec<String>| !component.as_ref().is_some_and(|name| silent.contains(name));
        self.silent.subscribe().wait_for(speaks).await.map_err(|error| error.to_string())?;
        let port = u16::try_from(identity.pid).unwrap_or(0) + 4000;
        Ok(SocketAddr::from(([127, 0, 0, 1], port)))
    }
}

/// A component whose gate the test opens and closes.
#[derive(Debug, Clone)]
pub struct FakeComponent {
    open: watch::Sender<bool>,
    listens: Listens,
    obstacle: Arc<Mutex<Option<PrepareError>>>,
    previous: Arc<Mutex<Vec<Option<SocketAddr>>>>,
}

impl FakeComponent {
    pub fn new() -> Self {
        let (obstacle, previous) = (Arc::default(), Arc::default());
        Self { open: watch::Sender::new(true), listens: Listens::OneTcp, obstacle, previous }
    }

    /// What stands in the way of the next preparations.
    pub fn set_obstacle(&self, obstacle: Option<PrepareError>) {
        if let Ok(mut current) = self.obstacle.lock() {
            *current = obstacle;
        }
    }

    /// The previous address each preparation was told.
    pub fn previous_addresses(&self) -> Vec<Option<SocketAddr>> {
        self.previous.lock().map(|previous| previous.clone()).unwrap_or_default()
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
        Ok(ProcessSpec {
            program: PathBuf::from("/fake"),
            arg0: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            dir: PathBuf::from("/"),
            output: PathBuf::from("/fake.log"),
            user: None,
        })
    }

    fn listens(&self) -> Listens {
        self.listens
    }

    async fn ready(&self, _running: &Running, note: &WaitNote) -> Result<(), GateError> {
        note.say("the test to open its gate");
        let mut open = self.open.subscribe();
        open.wait_for(|open| *open).await.map(|_| ()).map_err(|error| GateError::Hopeless(error.to_string()))
    }
}

/// A guard that gives the verdict the test sets.
#[derive(Debug, Clone, Default)]
pub struct FakeGuard {
    verdict: Arc<Mutex<Option<PrepareError>>>,
}

impl FakeGuard {
    pub fn set(&self, verdict: Option<PrepareError>) {
        if let Ok(mut current) = self.verdict.lock() {
            *current = verdict;
        }
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
