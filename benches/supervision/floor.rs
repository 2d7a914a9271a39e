//! The floor: the standard library's spawn (posix_spawn) and a wait, restart at once, stop one by one in reverse.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct Floor(Vec<Child>);

fn sleeper() -> Child {
    Command::new("/bin/sleep")
        .arg("10000")
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

pub(crate) fn kill(pid: u32) {
    signal(pid, rustix::process::Signal::KILL);
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

impl Floor {
    pub(crate) fn new(count: usize) -> Self {
        Self((0..count).map(|_| sleeper()).collect())
    }

    pub(crate) fn kill_and_replace(&mut self) -> Duration {
        let from = Instant::now();
        kill(self.0[0].id());
        self.0[0].wait().unwrap();
        self.0[0] = sleeper();
        from.elapsed()
    }

    pub(crate) fn stop(&mut self) {
        for mut child in self.0.drain(..).rev() {
            signal(child.id(), rustix::process::Signal::TERM);
            child.wait().unwrap();
        }
    }
}
