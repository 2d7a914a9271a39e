//! `cargo test --test front_storm`: twenty thousand clients at a front with few open files. See docs/reliability.md.
//!
//! Not a libtest binary: it is also the daemon, its components, and the crowds.

#[path = "chaos/mod.rs"]
mod storms;

fn main() -> std::process::ExitCode {
    storms::flood::main()
}
