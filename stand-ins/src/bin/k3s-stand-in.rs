//! The k3s stand-in as a program of its own, for tests and for trying it by hand.

fn main() -> std::process::ExitCode {
    berth_stand_ins::k3s::main(std::env::args().skip(1).collect())
}
