//! A group of sleepers under the real tree and the real process host.

use actix::prelude::*;
use async_trait::async_trait;
use berth::discover::SockDiag;
use berth::layout::Layout;
use berth::process::{ProcessHost, identity_of, orphans};
use berth_actors::child::actor::Outside;
use berth_actors::group::actor::{GroupActor, Member};
use berth_actors::host::{
    Accounted, Blueprint, Context, GateError, Listens, PrepareError, Processes, Running, WaitNote,
};
use berth_actors::identity::ComponentId;
use berth_actors::message::{Command, Reply, TreeEvent};
use berth_actors::policy::RestartPolicy;
use berth_actors::spec::{ProcessSpec, Role, Seam, Signal, Step, StopPlan};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};
use tokio::sync::broadcast;

struct Sleeper {
    dir: PathBuf,
}

#[async_trait]
impl Blueprint for Sleeper {
    fn spec(&self, _: &Context) -> Result<ProcessSpec, PrepareError> {
        Ok(ProcessSpec {
            program: "/bin/sleep".into(),
            arg0: None,
            args: vec!["10000".to_owned()],
            env: BTreeMap::new(),
            start_env: BTreeMap::new(),
            dir: self.dir.clone(),
            output: self.dir.join("log"),
            user: None,
            ready: None,
        })
    }

    async fn prepare(&self, context: &Context, _: &WaitNote) -> Result<ProcessSpec, PrepareError> {
        self.spec(context)
    }

    fn listens(&self) -> Listens {
        Listens::No
    }

    async fn ready(&self, _: &Running, _: &WaitNote) -> Result<(), GateError> {
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Arrival {
    Ready,
}

pub(crate) struct House {
    group: Addr<GroupActor>,
    processes: ProcessHost,
    events: broadcast::Receiver<TreeEvent>,
    layout: Layout,
    count: usize,
    _dir: tempfile::TempDir,
}

impl House {
    /// Returns once all are ready.
    pub(crate) async fn new(count: usize) -> Self {
        static SUBREAPER: Once = Once::new();
        SUBREAPER.call_once(|| orphans::adopt().unwrap());
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path().to_owned(), Some(dir.path().join("run")));
        let processes = ProcessHost::new(&layout).unwrap();
        let (sender, events) = broadcast::channel(64);
        let outside =
            Outside { processes: Arc::new(processes.clone()), listeners: Arc::new(SockDiag), events: sender };
        let restart = RestartPolicy {
            base_delay: Duration::ZERO,
            healthy_after: Duration::ZERO,
            intensity: u32::MAX,
            window: Duration::ZERO,
            ..RestartPolicy::default()
        };
        let member = |number: usize| Member {
            name: format!("s{number:04}"),
            steps: vec![Step {
                component: "main".to_owned(),
                role: Role::Plain,
                seam: Seam::Open,
                blueprint: Arc::new(Sleeper { dir: dir.path().to_owned() }),
                restart: restart.clone(),
                stop: StopPlan {
                    signal: Signal::Term,
                    deadline: Duration::from_secs(10),
                    repeat_after: None,
                },
                start_deadline: Duration::from_secs(60),
                reactions: BTreeMap::new(),
                stand_in: None,
            }],
            after: Vec::new(),
        };
        let group = GroupActor::new((0..count).map(member).collect(), outside).unwrap().start();
        group.send(Command::Up).await.unwrap().unwrap();
        group.send(Command::AwaitReady).await.unwrap().unwrap();
        Self { group, processes, events, layout, count, _dir: dir }
    }

    pub(crate) async fn pid_of(&mut self, number: usize) -> u32 {
        let Ok(Reply::Status(status)) = self.group.send(Command::Status).await.unwrap() else {
            unreachable!("a status was asked for")
        };
        // What happened before is not what is waited for next.
        self.events = self.events.resubscribe();
        status.services[number].children[0].pid.unwrap()
    }

    pub(crate) async fn until(&mut self, number: usize, arrival: Arrival) {
        let (subject, Arrival::Ready) = (format!("s{number:04}/main"), arrival);
        loop {
            let event = self.events.recv().await.unwrap();
            if event.subject == subject && event.what.starts_with("ready") {
                return;
            }
        }
    }

    /// What the next daemon's host does before its tree looks at a gate: reads the ledger, confirms and watches every process,
    /// looks for strays, hands each over. Beside it, one look at each process in `/proc`.
    pub(crate) async fn adoption(&self) -> (Duration, Duration) {
        let component = |number| ComponentId::new(format!("s{number:04}"), "main");
        let components: BTreeSet<_> = (0..self.count).map(component).collect();
        let from = Instant::now();
        let next = ProcessHost::new(&self.layout).unwrap();
        let accounted = Accounted { components, ..Accounted::default() };
        assert_eq!(next.reap_strays(&accounted).await.unwrap(), [""; 0]);
        let mut pids = Vec::new();
        for component in next.survivors().await {
            pids.push(next.adopt(&component).await.unwrap().unwrap().running.identity.pid);
        }
        let adopted = from.elapsed();
        assert_eq!(pids.len(), accounted.components.len());
        let from = Instant::now();
        assert!(pids.iter().all(|pid| identity_of(*pid).is_some()));
        (from.elapsed(), adopted)
    }

    pub(crate) async fn down(self) {
        self.group.send(Command::Down).await.unwrap().unwrap();
        self.processes.tidy().await;
    }
}

/// This process's proportional memory.
pub(crate) fn proportional_kib() -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}
