//! The cloud controller manager as a program of its own; see `berth::ccm`.

fn main() -> std::process::ExitCode {
    berth::ccm::main()
}
