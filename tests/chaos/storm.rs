//! Carries storms out: hits, lets the tree recover, and judges.
//!
//! The pauses between faults are the storm's own; the end of a storm is waited for by looking, because what is waited for
//! must be seen from outside the daemon.

use super::args::{Kind, Run};
use super::census::Process;
use super::component::{EXIT_AT_START, IGNORE_TERM};
use super::plan::{Fault, Nature, Plan, Storm, Trigger};
use super::system::{DEMO, EXTRA, System};
use super::tally::Tally;
use super::verdict;
use super::writers::Writer;
use berth::control::Client;
use berth::control::api::Action;
use berth::fault;
use berth_actors::status::TreeStatus;
use rustix::process::Signal;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

pub async fn run(seed: u64, run: &Run) -> Result<Tally, String> {
    let began = Instant::now();
    let mut systems = JoinSet::new();
    for number in 0..run.systems {
        let share = run.faults / run.systems + usize::from(number < run.faults % run.systems);
        let plan = Plan::new(seed, number, run.kind, share);
        systems.spawn(whole(run.kind, number, plan));
    }
    let mut total = Tally::default();
    while let Some(tally) = systems.join_next().await {
        total.add(tally.unwrap()?);
    }
    total.took = began.elapsed();
    Ok(total)
}

/// One system, from its first start to its last stop.
async fn whole(kind: Kind, number: usize, plan: Plan) -> Result<Tally, String> {
    let mut weather = Weather::new(kind);
    let mut so_far = 0;
    let outcome = async {
        weather.bring_up().await?;
        for storm in plan {
            so_far += 1;
            let said = format!("{storm:?}");
            weather.pass(storm).await.map_err(|reason| format!("storm {so_far}, {said}: {reason}"))?;
        }
        weather.finish().await
    };
    let outcome = outcome.await;
    outcome.map_err(|reason| {
        let log = weather.system.log();
        let tail: Vec<_> = log.lines().rev().take(60).collect();
        let tail = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
        let dir = weather.system.keep();
        format!("system {number}: {reason}\nits directory is kept: {}\n{tail}", dir.display())
    })?;
    Ok(std::mem::take(&mut weather.tally))
}

struct Weather {
    system: System,
    writers: Vec<Writer>,
    tally: Tally,
    /// Orders to the daemon that are under way.
    orders: JoinSet<()>,
    frozen: Vec<Process>,
    /// Killed in this storm: the daemon must have noticed before its word counts.
    killed: Vec<i32>,
    stolen: Vec<TcpListener>,
    /// Something is armed that should strike by itself.
    armed: bool,
    status: TreeStatus,
}

impl Weather {
    fn new(kind: Kind) -> Self {
        Self {
            system: System::new(kind),
            writers: Vec::new(),
            tally: Tally::default(),
            orders: JoinSet::new(),
            frozen: Vec::new(),
            killed: Vec::new(),
            stolen: Vec::new(),
            armed: false,
            status: TreeStatus::default(),
        }
    }

    fn bound(&self) -> Duration {
        match self.system.kind {
            Kind::StandIn => Duration::from_secs(150),
            Kind::Real => Duration::from_secs(240),
        }
    }

    /// For a place that was armed to be passed, once whatever leads there was done.
    fn strike(&self) -> Duration {
        match self.system.kind {
            Kind::StandIn => Duration::from_millis(500),
            Kind::Real => Duration::from_secs(5),
        }
    }

    /// Longer than the deadlines that a freeze or a stolen port should outlast.
    fn long(&self) -> Duration {
        match self.system.kind {
            Kind::StandIn => super::blueprint::RECHECK_WITHIN + super::blueprint::STOP_WITHIN,
            Kind::Real => Duration::from_secs(5),
        }
    }

    async fn bring_up(&mut self) -> Result<(), String> {
        self.system.ensure_daemon();
        let client = self.system.client();
        let created = async {
            // `berth dev` makes it by itself.
            while self.system.kind == Kind::StandIn && client.create_cluster(DEMO).await.is_err() {
                sleep(LOOK).await;
            }
        };
        timeout(self.bound(), created).await.map_err(|_| "demo cannot be created".to_owned())?;
        self.settle().await?;
        self.writers = Writer::start(self.system.kind, &self.system.layout, self.system.front);
        verdict::in_order(&self.system, &self.status)
    }

    async fn pass(&mut self, storm: Storm) -> Result<(), String> {
        let said = format!("{:?}", storm.faults);
        let before = self.system.census().identities();
        for (pause, fault) in storm.faults {
            sleep(pause).await;
            if self.system.daemon_is_dead() {
                self.system.ensure_daemon();
            }
            *self.tally.faults.entry(fault.name()).or_default() += 1;
            if storm.nature == Nature::Calm {
                self.stop_everything().await?;
            } else {
                self.hit(fault).await;
            }
        }
        let began = Instant::now();
        self.settle().await?;
        let took = (began.elapsed(), said);
        if self.tally.longest < took {
            self.tally.longest = took;
        }
        self.tally.written = self.judge().await?;
        self.tally.reads += self.writers.len();
        self.tally.storms += 1;
        match storm.nature {
            Nature::Mixed => Ok(()),
            Nature::Calm => verdict::in_order(&self.system, &self.status),
            Nature::DaemonOnly => {
                let after = self.system.census().identities();
                if before == after {
                    return Ok(());
                }
                Err(format!("the daemon's death changed processes: {before:?} became {after:?}"))
            }
        }
    }

    async fn judge(&self) -> Result<usize, String> {
        verdict::holds(&self.system, &self.status, &self.writers).await
    }

    async fn finish(&mut self) -> Result<(), String> {
        self.tally.daemons = self.system.daemons;
        self.writers.clear();
        self.stop_everything().await
    }

    async fn stop_everything(&mut self) -> Result<(), String> {
        self.system.signal_daemon(Signal::INT);
        let ended = async {
            while !self.system.daemon_is_dead() {
                sleep(LOOK).await;
            }
        };
        let bound = Duration::from_secs(60);
        timeout(bound, ended).await.map_err(|_| "the daemon does not stop".to_owned())?;
        let left = self.system.census().0;
        if left.is_empty() { Ok(()) } else { Err(format!("it stopped and left {left:?}")) }
    }

    async fn hit(&mut self, fault: Fault) {
        match fault {
            Fault::Kill { pick } => self.kill_any(pick),
            Fault::KillDaemon => self.system.kill_daemon(),
            Fault::Together { pick, apart } => {
                self.kill_main(pick);
                sleep(apart).await;
                self.system.kill_daemon();
            }
            Fault::KillWhileCreated { pick, after } => {
                self.prepare(Trigger::Create).await;
                self.create();
                sleep(after).await;
                let of_extra = |main: &Process| main.component.starts_with(EXTRA);
                let census = self.system.census();
                let mains: Vec<_> =
                    census.mains().into_values().flatten().filter(|main| of_extra(main)).collect();
                if !mains.is_empty() {
                    self.kill(mains[pick as usize % mains.len()]);
                }
            }
            Fault::At { place, trigger, skip, freeze, pick } => {
                self.prepare(trigger).await;
                self.system.arm(place, skip, if freeze { "freeze" } else { "die" });
                self.armed = fault::EXIST;
                self.pull(trigger, pick);
                self.await_strike(place).await;
                if freeze {
                    sleep(LOOK * 5).await;
                    self.system.signal_daemon(Signal::CONT);
                }
            }
            Fault::FreezeUnderRestart { pick } => self.freeze_under_restart(pick).await,
            Fault::FreezeDaemon { pick } => {
                self.system.signal_daemon(Signal::STOP);
                self.kill_main(pick);
                sleep(LOOK * 20).await;
                self.system.signal_daemon(Signal::CONT);
            }
            Fault::FullDisk { pick } => {
                let is_full = self.system.fill_disk();
                if !is_full {
                    self.system.arm(fault::ANY, 0, "full");
                }
                self.kill_main(pick);
                self.create();
                sleep(LOOK * 20).await;
                if is_full {
                    self.system.free_disk();
                } else {
                    self.note("full disk", self.system.disarm());
                }
            }
            Fault::StealPort { pick } => self.steal_port(pick).await,
            Fault::ExitAtStart { pick } => {
                if let Some(main) = self.kill_main(pick) {
                    self.misbehave(&main.component, EXIT_AT_START);
                }
            }
            Fault::IgnoreTerm => {
                self.misbehave(&format!("{DEMO}/kine"), IGNORE_TERM);
                self.order(|client| async move { drop(client.act(DEMO, Action::Restart).await) });
            }
            Fault::Handover => self.order(|client| async move { drop(client.handover().await) }),
            Fault::Create => self.create(),
            Fault::Delete => self.order(|client| async move { drop(client.delete_cluster(EXTRA).await) }),
            Fault::Restart => {
                self.order(|client| async move { drop(client.act(DEMO, Action::Restart).await) });
            }
        }
    }

    fn create(&mut self) {
        self.order(|client| async move { drop(client.create_cluster(EXTRA).await) });
    }

    /// Brings about what a trigger needs, before anything is armed.
    async fn prepare(&mut self, trigger: Trigger) {
        if trigger == Trigger::Handover {
            // There is none unless everything is ready. If it never is, the end of the storm says why.
            let _ = self.settle().await;
        }
        let client = self.system.client();
        let exists = self.system.records().contains_key(EXTRA);
        let prepared = async {
            match trigger {
                Trigger::Create if exists => drop(client.delete_cluster(EXTRA).await),
                Trigger::Delete if !exists => drop(client.create_cluster(EXTRA).await),
                _ => {}
            }
        };
        let _ = timeout(self.bound(), prepared).await;
    }

    fn pull(&mut self, trigger: Trigger, pick: u32) {
        match trigger {
            Trigger::Death => drop(self.kill_main(pick)),
            Trigger::Takeover => {
                self.system.kill_daemon();
                self.system.ensure_daemon();
            }
            Trigger::Restart => {
                self.order(|client| async move { drop(client.act(DEMO, Action::Restart).await) });
            }
            Trigger::Handover => self.order(|client| async move { drop(client.handover().await) }),
            Trigger::Create => self.create(),
            Trigger::Delete => {
                self.order(|client| async move { drop(client.delete_cluster(EXTRA).await) });
            }
        }
    }

    /// Until what is armed has struck, or whatever should have led there is over.
    async fn await_strike(&mut self, place: &'static str) {
        let mut calm_since = Instant::now();
        while self.armed && self.system.struck().is_none() {
            while self.orders.try_join_next().is_some() {}
            if !self.orders.is_empty() {
                calm_since = Instant::now();
            }
            if calm_since.elapsed() > self.strike() {
                break;
            }
            sleep(LOOK).await;
        }
        if std::mem::take(&mut self.armed) {
            self.note(place, self.system.disarm());
        }
    }

    fn note(&mut self, armed: &'static str, struck: Option<String>) {
        match struck {
            Some(place) => *self.tally.places.entry(place).or_default() += 1,
            None if fault::EXIST => *self.tally.missed.entry(armed).or_default() += 1,
            None => {}
        }
    }

    fn order<F: Future<Output = ()> + Send + 'static>(&mut self, give: impl FnOnce(Client) -> F) {
        let (order, bound) = (give(self.system.client()), self.bound());
        self.orders.spawn(async move {
            let _ = timeout(bound, order).await;
        });
    }

    fn kill_any(&mut self, pick: u32) {
        let census = self.system.census().0;
        if !census.is_empty() {
            self.kill(&census[pick as usize % census.len()]);
        }
    }

    fn kill(&mut self, victim: &Process) {
        victim.signal(Signal::KILL);
        self.killed.push(victim.pid);
    }

    fn kill_main(&mut self, pick: u32) -> Option<Process> {
        let census = self.system.census();
        let mains: Vec<_> = census.mains().into_values().flatten().cloned().collect();
        let victim = mains.get(pick as usize % mains.len().max(1))?.clone();
        self.kill(&victim);
        Some(victim)
    }

    /// The process of `component`, if it has one.
    fn main_of(&self, component: &str) -> Option<Process> {
        self.system.census().mains().get(component)?.first().map(|main| (*main).clone())
    }

    async fn freeze_under_restart(&mut self, pick: u32) {
        let slot = self.status.active_slot.map_or("slot-a", |slot| slot.chain());
        let pairs = [
            (format!("{DEMO}/postgres"), format!("{DEMO}/kine")),
            (format!("{DEMO}/kine"), format!("{DEMO}/kube-apiserver")),
            (format!("{slot}/kine"), format!("{slot}/kcp")),
        ];
        let (upstream, frozen) = &pairs[pick as usize % pairs.len()];
        let Some(frozen) = self.main_of(frozen) else { return };
        frozen.signal(Signal::STOP);
        self.frozen.push(frozen);
        if let Some(upstream) = self.main_of(upstream) {
            self.kill(&upstream);
        }
        sleep(self.long()).await;
    }

    async fn steal_port(&mut self, pick: u32) {
        let slot = self.status.active_slot.map_or("slot-a", |slot| slot.chain());
        let victims = [format!("{slot}/kine"), format!("{slot}/kcp"), format!("{DEMO}/kube-apiserver")];
        let component = &victims[pick as usize % victims.len()];
        let Some((address, main)) = self.address_of(component).zip(self.main_of(component)) else { return };
        self.kill(&main);
        let began = Instant::now();
        while began.elapsed() < LOOK * 30 {
            if let Ok(listener) = TcpListener::bind(address) {
                self.stolen.push(listener);
                sleep(LOOK * 30).await;
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    fn address_of(&self, component: &str) -> Option<SocketAddr> {
        let (chain, name) = component.split_once('/')?;
        let chain = self.status.slots.iter().chain(&self.status.tenants).find(|of| of.name == chain)?;
        chain.children.iter().find(|child| child.name == name)?.address
    }

    fn misbehave(&self, component: &str, how: &str) {
        let Some((chain, name)) = component.split_once('/') else { return };
        let layout = &self.system.layout;
        let kcp_side = chain.starts_with("kcp-") || chain.starts_with("slot-");
        let dir = if kcp_side { layout.kcp_chain(chain) } else { layout.cluster(chain) };
        let _ = fs::write(dir.join(format!("{name}.{how}")), "");
    }

    /// Ends every fault that lasts, keeps a daemon running, and waits until it says that everything is ready.
    async fn settle(&mut self) -> Result<(), String> {
        self.stolen.clear();
        self.frozen.drain(..).for_each(|frozen| frozen.signal(Signal::CONT));
        self.system.signal_daemon(Signal::CONT);
        let (client, bound, began) = (self.system.client(), self.bound(), Instant::now());
        let mut missing = "no daemon answers".to_owned();
        while began.elapsed() < bound {
            self.system.ensure_daemon();
            while self.orders.try_join_next().is_some() {}
            // A deletion that failed on a full disk is the operator's to ask for again.
            if self.orders.is_empty() && self.system.records().values().any(|record| record.erase) {
                self.order(|client| async move { drop(client.delete_cluster(EXTRA).await) });
            }
            match timeout(bound, client.status()).await {
                Ok(Ok(status)) if self.orders.is_empty() => {
                    match verdict::arrived(&self.system, &status, &self.killed) {
                        Ok(()) => {
                            self.killed.clear();
                            self.status = status;
                            return Ok(());
                        }
                        Err(reason) => missing = reason,
                    }
                }
                Ok(Ok(_)) => "an order is under way".clone_into(&mut missing),
                Ok(Err(reason)) => missing = reason.to_string(),
                Err(_) => "the daemon does not answer".clone_into(&mut missing),
            }
            sleep(LOOK).await;
        }
        Err(format!("not ready within {} s: {missing}", bound.as_secs()))
    }
}
