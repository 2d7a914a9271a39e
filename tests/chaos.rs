//! Storms of faults in the size a test run can afford; `examples/chaos.rs` takes longer ones. See docs/reliability.md.
//!
//! Not a libtest binary: it is also the stand-in daemon and every stand-in component, which must be programs.

#[path = "chaos/mod.rs"]
mod storms;

fn main() -> std::process::ExitCode {
    storms::main(storms::Size::Test)
}
