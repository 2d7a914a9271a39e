//! What the layer-4 front costs beside no front at all, in one process: `cargo bench --bench front`.
//!
//! Each line prints the way straight to the server, the way through the front, what the front makes of it, and its bar. Both
//! ways take turns, so that a busy machine hurts both alike; CPU is that of the front's own threads. It takes half a minute.
//! `cargo bench --bench front -- 200` makes each turn 200 ms instead of a second's half.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_precision_loss,
    clippy::disallowed_methods,
    reason = "a bench prints, reads only of itself, and one that fails has nothing to clean up"
)]

#[path = "front/load.rs"]
mod load;
#[path = "front/own.rs"]
mod own;

use berth::front::{Front, FrontConfig};
use berth_actors::host::Dataplane;
use berth_actors::identity::SlotName;
use load::{Clients, Server};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const TURN: Duration = Duration::from_millis(500);
const ROUNDS: usize = 5;
const KIB: u32 = 1 << 10;
const MIB: u32 = 1 << 20;
const IDLE: usize = 1000;
const RETARGETS: usize = 200;

/// A kind of load: how many clients, whether each asks once, how much it asks for, and in what its CPU is told.
struct Kind {
    rate: &'static str,
    cpu: &'static str,
    clients: usize,
    once: bool,
    answer: u32,
    /// Answers a unit of CPU is told for; seconds of CPU a unit may cost. The best of HAProxy and nginx (docs/performance.md).
    unit: f64,
    most: f64,
}

const KINDS: [Kind; 3] = [
    Kind {
        rate: "new connections a second",
        cpu: "  CPU for 10 000",
        clients: 16,
        once: true,
        answer: KIB,
        unit: 1e4,
        most: 0.36,
    },
    Kind {
        rate: "requests a second, kept",
        cpu: "  CPU for 100 000",
        clients: 16,
        once: false,
        answer: KIB,
        unit: 1e5,
        most: 0.85,
    },
    Kind {
        rate: "answers of 1 MiB a second",
        cpu: "  CPU for a GB",
        clients: 4,
        once: false,
        answer: MIB,
        unit: 1e9 / MIB as f64,
        most: 0.30,
    },
];
/// Of the rate without a front. It doubles the sockets, and here all share the same CPUs.
const LEAST_RATE: f64 = 0.5;

fn main() {
    // cargo adds arguments of its own.
    let turn =
        std::env::args().skip(1).find_map(|word| word.parse().ok()).map_or(TURN, Duration::from_millis);
    let (a, b) = (Server::new(*b"A"), Server::new(*b"B"));
    let front = Front::bind(load::any_port(), FrontConfig::default()).unwrap();
    let calls = tokio::runtime::Builder::new_current_thread().build().unwrap();
    calls.block_on(front.retarget(Some((SlotName::A, a.address))));
    let ways = [a.address, front.address()];

    println!("{:<34}{:>14}{:>14}{:>11}  bar", "", "direct", "front", "");
    for kind in &KINDS {
        throughput(kind, ways, turn);
    }
    latency("kept connection", ways, false, turn, 12.0);
    latency("new connection", ways, true, turn, 24.0);
    idle(ways);
    let mut slots = [(SlotName::B, b.address), (SlotName::A, a.address)].into_iter().cycle();
    retargets(&front, || {
        let slot = slots.next().unwrap();
        calls.block_on(front.retarget(Some(slot)));
        slot.0
    });
}

fn throughput(kind: &Kind, ways: [SocketAddr; 2], turn: Duration) {
    let (mut rates, mut costs) = ([const { Vec::new() }; 2], Vec::new());
    for _ in 0..ROUNDS {
        for (rates, way) in rates.iter_mut().zip(ways) {
            let before = own::cpu();
            let clients = Clients { way, count: kind.clients, once: kind.once, answer: kind.answer };
            let answers = clients.run(turn).len() as f64;
            rates.push(answers / turn.as_secs_f64());
            if way == ways[1] {
                costs.push(own::cpu().saturating_sub(before).as_secs_f64() / answers * kind.unit);
            }
        }
    }
    let [direct, front] = rates.map(median);
    println!(
        "{:<34}{direct:>14.0}{front:>14.0}{:>9.2} x  at least {LEAST_RATE} x",
        kind.rate,
        front / direct
    );
    println!("{:<34}{:>14}{:>12.3} s{:>11}  at most {} s", kind.cpu, "", median(costs), "", kind.most);
}

/// One client at a time, and all on one CPU: else the scheduler's placement is measured.
fn latency(what: &str, ways: [SocketAddr; 2], once: bool, turn: Duration, most: f64) {
    let _pinned = own::OnOneCpu::pin();
    let mut took = [const { Vec::new() }; 2];
    for _ in 0..ROUNDS {
        for (took, way) in took.iter_mut().zip(ways) {
            took.extend(Clients { way, count: 1, once, answer: KIB }.run(turn));
        }
    }
    for (part, name, bar) in [(50, "p50", Some(most)), (99, "p99", None)] {
        let [direct, front] = took.each_mut().map(|took| percentile(took, part).as_secs_f64() * 1e6);
        let bar = bar.map_or_else(|| "-".to_owned(), |most| format!("at most {most} us more"));
        let what = format!("{what}, {name}");
        println!("{what:<34}{direct:>11.1} us{front:>11.1} us{:>8.1} us  {bar}", front - direct);
    }
}

/// The clients' and the servers' own memory is in both ways.
fn idle(ways: [SocketAddr; 2]) {
    let mut open = Vec::new();
    let each = ways.map(|way| {
        let before = own::memory();
        open.extend((0..IDLE).map(|_| load::answered(way)));
        own::memory().saturating_sub(before) as f64 / 1024.0 / IDLE as f64
    });
    let [direct, front] = each;
    println!(
        "{:<34}{direct:>10.2} KiB{front:>10.2} KiB{:>7.2} KiB  at most 3.3 KiB more",
        "idle connection, one answer had",
        front - direct
    );
}

/// From the call to the answer of a connection that was made after it returned, less what any new connection takes.
fn retargets(front: &Front, mut retarget: impl FnMut() -> SlotName) {
    let (mut plain, mut moved, mut stale) = (Vec::new(), Vec::new(), 0);
    for _ in 0..RETARGETS {
        let from = Instant::now();
        load::answered(front.address());
        plain.push(from.elapsed());
        let from = Instant::now();
        let slot = retarget();
        let (_, name) = load::answered(front.address());
        moved.push(from.elapsed());
        stale += usize::from(name != [slot.to_string().to_ascii_uppercase().as_bytes()[0]]);
    }
    let [plain, moved] = [&mut plain, &mut moved].map(|took| percentile(took, 50).as_secs_f64() * 1e3);
    println!(
        "{:<34}{plain:>11.3} ms{moved:>11.3} ms{:>8.3} ms  at most 1 ms more",
        "new target answers, p50",
        moved - plain
    );
    println!("{:<34}{:>14}{stale:>14}{:>11}  0", format!("  of {RETARGETS}, answered by the old"), "", "");
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn percentile(samples: &mut [Duration], part: usize) -> Duration {
    samples.sort_unstable();
    samples[(samples.len() - 1) * part / 100]
}
