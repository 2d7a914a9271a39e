//! What supervision costs beside the least that the kernel allows, in one process: `cargo bench --bench supervision`.
//!
//! Each line prints a ratio (or a figure) and its bar. The floor runs in the same process, interleaved where that matters, so
//! that a busy machine hurts both alike. Children are `/bin/sleep`; everything ends with the bench. It takes about a minute.
//! `-- adoption [CHILDREN] [ROUNDS]` measures the adoption by the real program instead.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    clippy::cast_precision_loss,
    reason = "a bench prints, and one that fails has nothing to clean up; its floor is the standard library's own spawn"
)]

#[path = "supervision/adoption.rs"]
mod adoption;
#[path = "../tests/common/mod.rs"]
mod common;
#[path = "supervision/discovery.rs"]
mod discovery;
#[path = "supervision/floor.rs"]
mod floor;
#[path = "supervision/house.rs"]
mod house;

use house::{Arrival, House};
use std::time::{Duration, Instant};

/// Restarts of each side.
const RESTARTS: usize = 200;
/// Children of the large group.
const MANY: usize = 1000;
/// Supervisors killed, one after another.
const ADOPTIONS: usize = 21;

fn main() {
    if let Some(gate) = discovery::as_listener() {
        return discovery::listen_when_told(&gate);
    }
    // cargo adds arguments of its own.
    let mut words = std::env::args().skip(1).filter(|word| !word.starts_with("--"));
    let is_adoption = words.next().is_some_and(|word| word == "adoption");
    let mut numbers = words.map(|word| word.parse().expect("CHILDREN and ROUNDS are numbers"));
    actix::System::new().block_on(async {
        if is_adoption {
            let (children, rounds) = (numbers.next().unwrap_or(MANY), numbers.next().unwrap_or(ADOPTIONS));
            return adoption::of_a_started_program(children, rounds).await;
        }
        println!("{:<44}{:>12}{:>12}{:>9}  bar", "", "floor", "berth", "ratio");
        restarts().await;
        many().await;
        discovery::latency().await;
        discovery::probe_beside_many_sockets().await;
    });
}

/// From the kill to a successor that executes its program.
async fn restarts() {
    let mut house = House::new(1).await;
    let mut floor = floor::Floor::new(1);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..RESTARTS {
        theirs.push(floor.kill_and_replace());
        let pid = house.pid_of(0).await;
        let from = Instant::now();
        floor::kill(pid);
        house.until(0, Arrival::Ready).await;
        ours.push(from.elapsed());
    }
    ratio("restart, p50", median(&mut theirs), median(&mut ours), 1.5);
    floor.stop();
    house.down().await;
}

/// Bring-up, memory and ordered stop of a thousand.
async fn many() {
    let from = Instant::now();
    let mut floor = floor::Floor::new(MANY);
    let floor_up = from.elapsed();
    let from = Instant::now();
    floor.stop();
    let floor_down = from.elapsed();

    let before = house::proportional_kib();
    let from = Instant::now();
    let house = House::new(MANY).await;
    let up = from.elapsed();
    let after = house::proportional_kib();
    let (looked, adopted) = house.adoption().await;
    let from = Instant::now();
    house.down().await;
    let down = from.elapsed();

    ratio("bring-up of 1000", floor_up, up, 2.0);
    println!(
        "{:<44}{:>12}{:>12}{:>9.1}  500 ms",
        "adoption of 1000 (floor: one look at each)",
        shown(looked),
        shown(adopted),
        adopted.as_secs_f64() / looked.as_secs_f64()
    );
    let beyond = down.saturating_sub(floor_down) / u32::try_from(MANY).unwrap();
    println!(
        "{:<44}{:>12}{:>12}{:>9}  1 ms a child beyond its exit",
        "ordered stop of 1000, a child",
        shown(floor_down / 1000),
        shown(down / 1000),
        shown(beyond)
    );
    let each = (after.saturating_sub(before)) as f64 / MANY as f64;
    println!("{:<44}{:>12}{each:>8.1} KiB{:>9}  16 KiB", "memory a child (PSS, 1000 children)", "", "");
}

fn median(samples: &mut [Duration]) -> Duration {
    samples.sort_unstable();
    samples[samples.len() / 2]
}

fn ratio(what: &str, floor: Duration, ours: Duration, bar: f64) {
    let ratio = ours.as_secs_f64() / floor.as_secs_f64();
    println!("{what:<44}{:>12}{:>12}{ratio:>9.2}  {bar}", shown(floor), shown(ours));
}

fn shown(duration: Duration) -> String {
    format!("{:.3} ms", duration.as_secs_f64() * 1000.0)
}
