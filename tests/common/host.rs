//! The host as a test looks at it from outside: processes, their command lines, what they leave.

use berth::file_events::FileEvents;
use procfs::process::{Process, all_processes};
use rustix::process::{Pid, Signal, kill_process};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    // It may have ended by itself meanwhile; the test sees that in what follows.
    let _ = kill_process(pid, signal);
}

/// Resolves when `path` may have come to exist: its first missing ancestor appeared, or a second has passed.
pub async fn created(path: &Path) {
    let next = path.ancestors().find(|path| path.parent().is_some_and(Path::is_dir)).unwrap();
    let mut events = FileEvents::of(next).unwrap();
    if !path.exists() {
        let _ = tokio::time::timeout(Duration::from_secs(1), events.changed()).await;
    }
}

/// Processes whose executable, command line or working directory lies below `dir`: pid and command line.
pub fn processes_below(dir: &Path) -> Vec<(i32, String)> {
    all_processes()
        .unwrap()
        .filter_map(Result::ok)
        .filter(|process| process.pid() != i32::try_from(std::process::id()).unwrap())
        .filter_map(|process| {
            let line = process.cmdline().unwrap_or_default().join(" ");
            let below = |path: Result<PathBuf, _>| path.is_ok_and(|path| path.starts_with(dir));
            let found = below(process.exe()) || below(process.cwd()) || line.contains(dir.to_str().unwrap());
            let zombie = process.stat().map_or(true, |stat| stat.state == 'Z');
            (found && !zombie).then(|| (process.pid(), line))
        })
        .collect()
}

/// The whole command line of a process, words separated by spaces.
pub fn command_line(pid: u32) -> String {
    let process = Process::new(i32::try_from(pid).unwrap()).unwrap();
    process.cmdline().unwrap_or_default().join(" ")
}

/// The file a process executes.
pub fn program(pid: u32) -> PathBuf {
    Process::new(i32::try_from(pid).unwrap()).unwrap().exe().unwrap()
}

/// When a process was started, in clock ticks since boot: the order of a bring-up.
pub fn start_time(pid: u32) -> u64 {
    Process::new(i32::try_from(pid).unwrap()).unwrap().stat().unwrap().starttime
}

/// Whether a process runs (a zombie does not).
pub fn is_alive(pid: u32) -> bool {
    Process::new(i32::try_from(pid).unwrap())
        .and_then(|process| process.stat())
        .is_ok_and(|stat| !['Z', 'X'].contains(&stat.state))
}
