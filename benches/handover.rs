//! Where the time of a handover goes: the sum against its parts, and what of it is Berth's own; and how soon a new connection
//! is the new slot's after a retarget.
//!
//! `cargo bench --bench handover [-- ROUNDS]` prints the tables of docs/performance.md. kcp is its stand-in, so the parts that
//! are kcp's are the stand-in's. A measurement, never a test: nothing here fails because it was slow.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "it measures or it ends; its tables go to the terminal"
)]

#[path = "../tests/common/mod.rs"]
mod common;

use berth::front::{Front, FrontConfig};
use berth_actors::handover::{Spent, Wish};
use berth_actors::host::Dataplane;
use berth_actors::identity::SlotName;
use berth_actors::status::{ChainState, HandoverOutcome, TreeStatus};
use common::{Home, child};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const ROUNDS: usize = 7;
const RETARGETS: usize = 1000;
/// Berth's own share of a handover.
const BAR: Duration = Duration::from_millis(500);
/// From the retarget's call to a new connection of the new slot.
const RETARGET_BAR: Duration = Duration::from_millis(1);

#[tokio::main]
async fn main() {
    // cargo adds arguments of its own.
    let rounds = std::env::args().skip(1).find_map(|word| word.parse().ok()).unwrap_or(ROUNDS);
    retargets().await;
    handovers(rounds).await;
}

/// A slot that says its name to whoever connects.
async fn slot(name: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = client.write_all(name).await;
        }
    });
    address
}

/// The name of the slot that a new connection to `address` reaches.
async fn reached(address: SocketAddr) -> u8 {
    let mut name = [0];
    TcpStream::connect(address).await.unwrap().read_exact(&mut name).await.unwrap();
    name[0]
}

async fn retargets() {
    let front = Front::bind(SocketAddr::from(([127, 0, 0, 1], 0)), FrontConfig::default()).unwrap();
    let slots = [(SlotName::A, slot(b"a").await, b'a'), (SlotName::B, slot(b"b").await, b'b')];
    let (mut calls, mut strays) = (Vec::new(), 0);
    for round in 0..RETARGETS {
        let (name, address, letter) = slots[round % 2];
        let called = Instant::now();
        front.retarget(Some((name, address))).await;
        calls.push(called.elapsed());
        strays += usize::from(reached(front.address()).await != letter);
    }
    calls.sort();
    let at = |part: usize| calls[(calls.len() - 1) * part / 100].as_secs_f64() * 1e6;
    println!(
        "| retarget, call to effect | p50 | p99 | longest | bar | connections to the old slot after it |"
    );
    println!("|---|---|---|---|---|---|");
    println!(
        "| {RETARGETS} | {:.1} µs | {:.1} µs | {:.1} µs | {} ms | {strays} |\n",
        at(50),
        at(99),
        at(100),
        RETARGET_BAR.as_millis()
    );
}

/// One slot serves and nothing else goes on.
fn at_rest(status: &TreeStatus) -> bool {
    let ready = status.slots.iter().filter(|slot| slot.state == ChainState::Ready).count();
    let down = status.slots.iter().filter(|slot| slot.state == ChainState::Down).count();
    status.front.target.is_some() && (ready, down) == (1, 1)
}

async fn handovers(rounds: usize) {
    let home = Home::new();
    let config = home.config("");
    let daemon = home.up(&config);
    daemon.until("kcp to be served", at_rest).await;
    println!(
        "| handover | whole | new slot | of it kine, kcp | drain | old slot | lease | settling | own | staging | canary | retarget | release | journal | rest |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    let mut all = Vec::new();
    for round in 0..rounds {
        let handover = home.client().handover(Wish::Plain).await.unwrap();
        assert_eq!(handover.outcome, HandoverOutcome::Done, "{handover:#?}");
        let status = daemon.until("one slot", at_rest).await;
        let new = status.slots.iter().find(|slot| slot.name == handover.to.chain()).unwrap();
        let took = |name: &str| child(new, name).ready_took_ms.unwrap_or_default();
        row(&format!("{}", round + 1), &handover.spent, &format!("{}, {} ms", took("kine"), took("kcp")));
        all.push(handover.spent);
    }
    let median = |of: fn(&Spent) -> u64| {
        let mut values: Vec<u64> = all.iter().map(of).collect();
        values.sort_unstable();
        values[values.len() / 2]
    };
    let own = median(|spent| u64::try_from(spent.own().as_micros()).unwrap());
    println!("\nBerth's own, median of {rounds}: {} ms; bar {} ms", own / 1000, BAR.as_millis());
    home.ok(&["down"]);
    assert!(daemon.ended().success());
}

fn row(name: &str, spent: &Spent, new: &str) {
    let ms = |micros: u64| format!("{:.1} ms", Duration::from_micros(micros).as_secs_f64() * 1e3);
    let own = u64::try_from(spent.own().as_micros()).unwrap();
    let named = spent.stage_us + spent.canary_us + spent.retarget_us + spent.release_us + spent.journal_us;
    let cells = [
        ms(spent.whole_us),
        ms(spent.start_us),
        new.to_owned(),
        ms(spent.drain_us),
        ms(spent.stop_us),
        ms(spent.hold_us),
        ms(spent.settle_us),
        ms(own),
        ms(spent.stage_us),
        ms(spent.canary_us),
        ms(spent.retarget_us),
        ms(spent.release_us),
        ms(spent.journal_us),
        ms(own.saturating_sub(named)),
    ];
    println!("| {name} | {} |", cells.join(" | "));
}
