//! Children that cannot outlive their stand-in, not even after a `kill -9`.
//!
//! The kernel does that by the parent death signal, which only the child can ask for: so a stand-in starts itself again as
//! `<name> tethered ...`, which asks, checks that its parent is still there (it may have died first), and becomes the child.

use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::os::unix::process::CommandExt;
use std::path::Path;
use tokio::process::Command;

/// First argument of the re-executed stand-in.
const WORD: &str = "tethered";

/// A command that becomes `program`, for a stand-in whose `argv[0]` is `name`. To be spawned on the main thread: the death
/// signal follows the spawning thread, not the process.
pub(crate) fn command(name: &str, program: &Path) -> Command {
    // The link leads to this very program even when its file was replaced since.
    let mut command = Command::new("/proc/self/exe");
    command.arg0(name).args([WORD, &std::process::id().to_string()]).arg(program).kill_on_drop(true);
    command
}

/// The re-executed half: becomes the child, or says why not. `None` when `args` are not its own.
pub(crate) fn exec(args: &[String]) -> Option<String> {
    let (WORD, rest) = args.split_first().map(|(first, rest)| (first.as_str(), rest))? else { return None };
    let [parent, program, rest @ ..] = rest else {
        return Some("a child needs a parent and a program".into());
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return Some(format!("cannot tie the child to its parent: {error}"));
    }
    if getppid().map(|pid| pid.as_raw_nonzero().get().to_string()).as_ref() != Some(parent) {
        return Some("the stand-in ended before its child began".to_owned());
    }
    Some(format!("cannot run {program}: {}", std::process::Command::new(program).args(rest).exec()))
}
