//! `cargo build && cargo run --example chaos -- --stand-in --seed 7 --faults 2000`: storms of faults, as long as wanted.
//!
//! The same code as the test `chaos`, which runs a short one of each kind. A seed replays the faults in their order.

#[path = "../tests/chaos/mod.rs"]
mod storms;

fn main() -> std::process::ExitCode {
    storms::main(storms::Size::Example)
}
