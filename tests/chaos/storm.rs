//! Carries storms out: hits, lets the tree recover, and judges.
//!
//! The pauses between faults are the storm's own; the end of a storm is waited for by looking, because what is waited for
//! must be seen from outside the daemon.

mod hits;

use super::args::{Kind, Run};
use super::census::Process;
use super::plan::{Nature, Plan, Storm};
use super::system::{DEMO, EXTRA, System};
use super::tally::Tally;
use super::verdict;
use super::writers::Writer;
use berth_actors::status::TreeStatus;
use rustix::process::Signal;
use std::net::TcpListener;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// For a process to end after one it cannot live without.
const CONSEQUENCE: Duration = Duration::from_secs(1);
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

    /// What does not hold at a moment at which everything is ready. A main process that ends because one of its own was
    /// killed may do so only now: then the storm was not over yet.
    async fn judge(&mut self) -> Result<usize, String> {
        let began = Instant::now();
        loop {
            self.settle().await?;
            match verdict::holds(&self.system, &self.status, &self.writers).await {
                Err(reason) if began.elapsed() > self.bound() => return Err(reason),
                Err(reason) => {
                    sleep(CONSEQUENCE).await;
                    let now = self.system.client().status().await.map_err(|error| error.to_string())?;
                    if verdict::arrived(&self.system, &now, &[]).is_ok()
                        && verdict::shown(&now) == verdict::shown(&self.status)
                    {
                        return Err(reason);
                    }
                }
                written => return written,
            }
        }
    }

    async fn finish(&mut self) -> Result<(), String> {
        self.tally.daemons = self.system.daemons;
        self.writers.clear();
        self.stop_everything().await
    }

    async fn stop_everything(&mut self) -> Result<(), String> {
        self.system.forget_ends();
        self.system.signal_daemon(Signal::INT);
        let ended = async {
            while !self.system.daemon_is_dead() {
                sleep(LOOK).await;
            }
        };
        let bound = Duration::from_secs(60);
        timeout(bound, ended).await.map_err(|_| "the daemon does not stop".to_owned())?;
        let left = self.system.census().0;
        if !left.is_empty() {
            return Err(format!("it stopped and left {left:?}"));
        }
        verdict::stopped_in_order(&self.system.ends(), &self.status)
    }

    /// Ends every fault that lasts, keeps a daemon running, and waits until it says that everything is ready.
    async fn settle(&mut self) -> Result<(), String> {
        self.stolen.clear();
        self.frozen.drain(..).for_each(|frozen| frozen.signal(Signal::CONT));
        self.system.signal_daemon(Signal::CONT);
        if self.system.kind == Kind::Real && !self.killed.is_empty() {
            sleep(CONSEQUENCE).await;
        }
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
