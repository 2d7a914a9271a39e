//! What each component's death costs a cluster: for how long no write through its API server succeeds, and when everything is
//! ready again; with the default reactions and with plain rest_for_one, in the same run.
//!
//! `cargo bench --bench edges [-- ROUNDS]` prints the table of docs/supervision.md. A measurement, never a test: nothing here
//! fails because it was slow.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "it measures or it ends; its table goes to the terminal"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use berth_actors::status::{ChainState, TreeStatus};
use common::{Dev, Home, api, host, pids, tenant};
use kube::api::{Api, DynamicObject, PostParams};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

/// In the order of the chain: each is behind all before it.
const CHAIN: [&str; 6] =
    ["postgres", "openbao", "kine", "kube-apiserver", "kube-controller-manager", "cloud-controller-manager"];
const ROUNDS: usize = 3;
/// From the beginning of one write to the next, at least. One at a time: a client that piles writes up would measure itself.
const BEAT: Duration = Duration::from_millis(20);
/// A write that hangs longer than this has failed: the next one may find the server back.
const PATIENCE: Duration = Duration::from_millis(500);
/// What a busy host does to the gap between two writes while nobody is killed, and a little more.
const NOISE: u32 = 4;
/// Writes after all are ready again, to see the end of the outage.
const AFTERWARDS: usize = 25;

/// What one death cost.
#[derive(Debug, Clone, Copy)]
struct Cost {
    outage: Duration,
    ready: Duration,
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    // cargo adds arguments of its own.
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(ROUNDS);
    let (floor, ours) = measure(&configuration(false), rounds).await;
    let (_, plain) = measure(&configuration(true), rounds).await;
    println!("longest gap between two writes with nobody killed: {} ms\n", floor.as_millis());
    println!("| killed | no write for | with rest_for_one | ratio | all ready after | with rest_for_one |");
    println!("|---|---|---|---|---|---|");
    for component in CHAIN {
        let (ours, plain) = (median(&ours[component]), median(&plain[component]));
        let is_noise = |cost: Cost| cost.outage < NOISE * floor;
        let ratio = if is_noise(ours) && is_noise(plain) {
            "–".to_owned()
        } else {
            format!("{:.1}", plain.outage.as_secs_f64() / ours.outage.as_secs_f64())
        };
        println!(
            "| {component} | {:.2} s | {:.2} s | {ratio} | {:.2} s | {:.2} s |",
            ours.outage.as_secs_f64(),
            plain.outage.as_secs_f64(),
            ours.ready.as_secs_f64(),
            plain.ready.as_secs_f64(),
        );
    }
}

/// `healthy_after`: each death of a round is the first one.
fn configuration(rest_for_one: bool) -> String {
    let section = |(place, component): (usize, &&str)| {
        let earlier = CHAIN[..place].iter().filter(|_| rest_for_one);
        let reactions: Vec<_> =
            earlier.map(|earlier| format!("ride_through.{earlier} = \"restart\"\n")).collect();
        let reactions = reactions.concat();
        format!("[supervision.cluster.{component}]\nhealthy_after = \"1ms\"\n{reactions}")
    };
    let sections: String = CHAIN.iter().enumerate().map(section).collect();
    format!("[kcp]\nenabled = false\n{sections}")
}

/// The longest undisturbed gap, and what each death cost in each round.
async fn measure(configuration: &str, rounds: usize) -> (Duration, BTreeMap<&'static str, Vec<Cost>>) {
    let home = Home::new();
    let path = home.config(configuration);
    let dev = home.up(&path);
    dev.until("the daemon to answer", |_| true).await;
    // Until its records are read it has no clusters to add one to.
    while !home.berth(&["cluster", "create", "web"]).status.success() {
        tokio::task::yield_now().await;
    }
    dev.until("the cluster to be ready", is_ready).await;
    let writer = Writer::start(&home).await;
    writer.more(AFTERWARDS).await;
    let quiet = Instant::now();
    writer.more(4 * AFTERWARDS).await;
    let floor = writer.longest_gap_since(quiet);
    let mut costs: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for _ in 0..rounds {
        for component in CHAIN {
            let cost = death_of(component, &dev, &writer).await;
            eprintln!("{component}: {cost:?}");
            costs.entry(component).or_default().push(cost);
        }
    }
    home.ok(&["down"]);
    assert!(dev.ended().success());
    (floor, costs)
}

async fn death_of(component: &str, dev: &Dev<'_>, writer: &Writer) -> Cost {
    let victim = web(&dev.until("the cluster to be ready", is_ready).await)[component];
    writer.more(AFTERWARDS).await;
    let killed = Instant::now();
    host::signal(victim, Signal::KILL);
    let replaced = |status: &TreeStatus| is_ready(status) && web(status)[component] != victim;
    dev.until(component, replaced).await;
    let ready = killed.elapsed();
    writer.more(AFTERWARDS).await;
    Cost { outage: writer.longest_gap_since(killed), ready }
}

fn is_ready(status: &TreeStatus) -> bool {
    status.tenants.iter().any(|chain| chain.state == ChainState::Ready)
}

fn web(status: &TreeStatus) -> BTreeMap<String, u32> {
    pids(tenant(status, "web")).into_iter().collect()
}

fn median(costs: &[Cost]) -> Cost {
    let middle = |of: fn(&Cost) -> Duration| {
        let mut sorted: Vec<_> = costs.iter().map(of).collect();
        sorted.sort();
        sorted[sorted.len() / 2]
    };
    Cost { outage: middle(|cost| cost.outage), ready: middle(|cost| cost.ready) }
}

/// A client that writes for as long as it lives.
struct Writer {
    /// When each write that succeeded was acknowledged.
    acknowledged: Arc<Mutex<Vec<Instant>>>,
    news: Arc<Notify>,
    beat: tokio::task::JoinHandle<()>,
}

impl Writer {
    async fn start(home: &Home) -> Self {
        let kubeconfig = home.layout().cluster("web").join("kubeconfig");
        let maps = api::config_maps(api::client(&kubeconfig, None).await, "default");
        let (acknowledged, news) = (Arc::<Mutex<Vec<Instant>>>::default(), Arc::<Notify>::default());
        let (seen, told) = (Arc::clone(&acknowledged), Arc::clone(&news));
        let beat = tokio::spawn(async move {
            let mut beat = tokio::time::interval(BEAT);
            beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for number in 0.. {
                beat.tick().await;
                if write(&maps, number).await {
                    seen.lock().unwrap().push(Instant::now());
                    told.notify_waiters();
                }
            }
        });
        Self { acknowledged, news, beat }
    }

    /// Resolves after so many further writes.
    async fn more(&self, writes: usize) {
        let until = self.acknowledged.lock().unwrap().len() + writes;
        loop {
            let news = self.news.notified();
            if self.acknowledged.lock().unwrap().len() >= until {
                return;
            }
            news.await;
        }
    }

    fn longest_gap_since(&self, since: Instant) -> Duration {
        let acknowledged = self.acknowledged.lock().unwrap();
        let from = acknowledged.partition_point(|at| *at < since).saturating_sub(1);
        acknowledged[from..].windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.beat.abort();
    }
}

async fn write(maps: &Api<DynamicObject>, number: u64) -> bool {
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": format!("beat-{number}")},
    });
    let object = serde_json::from_value(object).unwrap();
    let parameters = PostParams::default();
    matches!(tokio::time::timeout(PATIENCE, maps.create(&parameters, &object)).await, Ok(Ok(_)))
}
