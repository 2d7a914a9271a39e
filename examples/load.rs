//! `cargo build && cargo run --example load -- --handovers 100`: clients of every kind through handovers of a Berth of its own; or
//! `-- --front 127.0.0.1:6443 --kubeconfig FILE --seconds 60`: the same load on a front that runs already.
//!
//! The same code as the test `load`. See docs/reliability.md.

#[path = "../tests/load/mod.rs"]
mod load;

fn main() -> std::process::ExitCode {
    load::main()
}
