//! Twenty thousand clients at a front whose daemon has few open files: whoever behaves is served before, during and after, kcp can be
//! started again meanwhile, and nothing of the flood is left.
//!
//! `crowd` are the clients, `vanish` those that go without a word, `watch` the daemon seen from outside.

mod crowd;
mod vanish;
mod watch;

use super::args::Kind;
use super::component::{self, EXIT_AT_START};
use super::line::{Place, ask};
use super::system::System;
use super::{daemon, interrupted};
use berth_actors::status::{ChildStatus, FrontStatus, TreeStatus};
use crowd::Manner;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;
use watch::Watch;

/// The daemon's limit of open files: 1,536 connections at one time, 1,152 of one address, 768 parked.
const OPEN_FILES: u64 = 4096;
const CLIENTS: usize = 20_000;
/// From one look at the daemon to the next.
const LOOK: Duration = Duration::from_millis(20);
/// Longer than anything takes on two busy cores.
const PATIENCE: Duration = Duration::from_secs(60);
/// A page or two for each connection that is let in, and what the accounting of a flood takes.
const MEMORY: u64 = 40 << 20;
/// Requests of somebody polite in each part.
const POLITE: usize = 100;

pub fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.first().map(String::as_str) {
        Some(component::ROLE) => component::main(&words[1..]),
        Some(daemon::ROLE) => daemon::main(&words[1..]),
        Some(crowd::ROLE) => crowd::main(&words[1..]),
        Some(vanish::ROLE) => vanish::main(),
        Some("--list") => {
            println!("front_storm: test");
            ExitCode::SUCCESS
        }
        // A filter that means other tests; what libtest is told about its threads and its output says nothing here.
        Some(word) if !word.starts_with('-') && !"front_storm".contains(word) => ExitCode::SUCCESS,
        _ => {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                tokio::select! {
                    () = storm() => ExitCode::SUCCESS,
                    () = interrupted() => ExitCode::FAILURE,
                }
            })
        }
    }
}

struct Flood {
    system: System,
    crowds: Vec<Child>,
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.disperse();
        if std::thread::panicking() {
            println!("{}", self.system.log());
        }
    }
}

async fn storm() {
    println!("vanished clients: {}", vanish::run());
    let mut flood = Flood { system: System::new(Kind::StandIn), crowds: Vec::new() };
    flood.system.open_files = Some(OPEN_FILES);
    flood.system.ensure_daemon();
    let status = flood.until("kcp to be served", |front| front.target.is_some()).await;
    let limits = status.front.limits;
    println!(
        "a daemon with {OPEN_FILES} open files: {} connections, {} of one address, {} parked",
        limits.connections, limits.per_peer, limits.parked
    );
    let mut watch = Watch::of(flood.system.daemon_pid());
    let mut old = BufStream::new(TcpStream::connect(flood.system.front).await.unwrap());
    flood.polite("before", &mut old).await;
    watch.begin();
    watch.say("before", &flood.front().await);

    // One address, however many it sends: everybody else comes in.
    flood.crowd(9, 1, CLIENTS / 2, Manner::Silent);
    flood.until("one address to be at its cap", |front| front.refused_by.peer_cap > 1000).await;
    flood.polite("beside one address", &mut old).await;
    watch.say("10,000 of one address", &flood.front().await);

    // Many addresses: the front is full, and whoever is in stays served.
    flood.crowd(10, 200, CLIENTS / 2 - 1000, Manner::Silent);
    flood.crowd(11, 20, 950, Manner::Slow);
    flood.crowd(12, 5, 50, Manner::Reset);
    flood.until("the front to be full", |front| front.open >= front.limits.connections).await;
    let took = requests(&mut old).await;
    println!(
        "{POLITE} requests on an open connection while the front is full: none failed, the slowest {took:?}"
    );
    watch.say("10,000 more of 225 addresses", &flood.front().await);

    flood.without_a_slot().await;
    watch.say("kcp killed, and kept down", &flood.front().await);
    let back = Instant::now();
    flood.until("kcp to be served again", |front| front.target.is_some() && front.parked == 0).await;
    println!("kcp is started again and those who waited are served, {:?} after it may", back.elapsed());
    drop(old);

    flood.disperse();
    flood.until("the front to be empty", |front| front.open == 0).await;
    watch.settled().await;
    watch.say("after", &flood.front().await);
    let mut new = BufStream::new(TcpStream::connect(flood.system.front).await.unwrap());
    flood.polite("after", &mut new).await;
    assert!(watch.growth() < MEMORY, "the daemon grew by {} MiB", watch.growth() >> 20);
    println!("every file closed again; the daemon grew by {} MiB at most", watch.growth() >> 20);

    // The next daemon has to open a file for each survivor, with the crowd at the door.
    flood.crowd(13, 25, CLIENTS / 8, Manner::Silent);
    let full = |front: &FrontStatus| front.open >= front.limits.connections;
    let before = kcp(&flood.until("the front to be full once more", full).await).pid;
    flood.system.kill_daemon();
    flood.system.ensure_daemon();
    let after = flood
        .until("the next daemon's front to be full", |front| front.target.is_some() && full(front))
        .await;
    assert_eq!(kcp(&after).pid, before, "kcp was adopted");
    println!(
        "a daemon that was killed in the flood: the next one has adopted kcp, and is as full as the first"
    );
}

impl Flood {
    fn crowd(&mut self, network: u8, addresses: usize, clients: usize, manner: Manner) {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([crowd::ROLE, &self.system.front.to_string(), &network.to_string()])
            .args([addresses.to_string(), clients.to_string(), manner.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        self.crowds.push(child);
    }

    fn disperse(&mut self) {
        for mut child in self.crowds.drain(..) {
            drop(child.stdin.take());
            child.wait().unwrap();
        }
    }

    async fn front(&self) -> FrontStatus {
        self.system.client().status().await.unwrap().front
    }

    /// Through the control socket, which has to answer all the while.
    async fn until(&self, what: &str, wanted: impl Fn(&FrontStatus) -> bool) -> TreeStatus {
        let mut last = None;
        let wait = async {
            loop {
                match self.system.client().status().await {
                    Ok(status) if wanted(&status.front) => return status,
                    answer => last = Some(answer),
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let Ok(status) = tokio::time::timeout(PATIENCE, wait).await else {
            panic!("waited in vain for {what}: {last:#?}");
        };
        status
    }

    /// Requests on a connection that is open, and as many on new ones. None may fail.
    async fn polite(&self, when: &str, old: &mut BufStream<TcpStream>) {
        let on_old = requests(old).await;
        let mut slowest = Duration::ZERO;
        for _ in 0..POLITE {
            let begun = Instant::now();
            ask(&Place::Port(self.system.front), "get lease").await.unwrap();
            slowest = slowest.max(begun.elapsed());
        }
        println!(
            "{when}: {POLITE} requests on an open connection, {POLITE} on new ones: none failed, the slowest {on_old:?} and {slowest:?}"
        );
    }

    /// Kills the kcp that serves, and keeps it from coming back until a parked flood is at its cap.
    async fn without_a_slot(&self) {
        let status = self.system.client().status().await.unwrap();
        let (slot, pid) = (status.active_slot.unwrap().chain(), kcp(&status).pid.unwrap());
        let knob = self.system.layout.kcp_chain(slot).join(format!("kcp.{EXIT_AT_START}"));
        let keep_down = async {
            loop {
                std::fs::write(&knob, "").unwrap();
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        std::fs::write(&knob, "").unwrap();
        kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
        let flooded = self.until("a parked flood to be refused", |front| {
            front.target.is_none() && front.parked == front.limits.parked && front.refused_by.parked_cap > 0
        });
        tokio::select! {
            _ = flooded => {}
            () = keep_down => {}
        }
        let _ = std::fs::remove_file(&knob);
    }
}

/// The one that serves.
fn kcp(status: &TreeStatus) -> &ChildStatus {
    let slot = status.active_slot.unwrap().chain();
    let chain = status.slots.iter().find(|chain| chain.name == slot).unwrap();
    chain.children.iter().find(|child| child.name == "kcp").unwrap()
}

/// The slowest of them.
async fn requests(stream: &mut BufStream<TcpStream>) -> Duration {
    let mut slowest = Duration::ZERO;
    for _ in 0..POLITE {
        let (begun, mut answer) = (Instant::now(), String::new());
        stream.write_all(b"get lease\n").await.unwrap();
        stream.flush().await.unwrap();
        tokio::time::timeout(PATIENCE, stream.read_line(&mut answer)).await.unwrap().unwrap();
        assert!(answer.ends_with('\n'), "the front ended a connection that was being served");
        slowest = slowest.max(begun.elapsed());
    }
    slowest
}
