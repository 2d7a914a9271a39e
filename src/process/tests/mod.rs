//! The host against real processes. A child tells through a named pipe how far it is; nobody waits for time to pass.

mod adoption;
mod birth;
mod earlier_daemon;
mod escapes;
mod life;
mod limits;
mod postgres;
mod storm;
mod strays;
mod tools;
mod zombies;

use super::ledger::Ledger;
use super::survivors::Survivor;
use super::tool::{Tool, ToolError};
use super::{ProcessHost, identity_of, is_alive, orphans, survivors, tool};
use crate::layout::Layout;
use crate::testing::not_exercised;
use berth_actors::host::{ExitStatus, Processes, SpawnError};
use berth_actors::identity::{ComponentId, Identity};
use berth_actors::spec::{ProcessSpec, Signal, User};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe;

/// A failing test shall fail, not hang.
const PATIENCE: Duration = Duration::from_secs(20);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("not within the test's patience")
}

struct Bench {
    /// Removed with the bench.
    dir: tempfile::TempDir,
    layout: Layout,
    host: ProcessHost,
    gate: Lines<BufReader<pipe::Receiver>>,
}

impl Bench {
    fn new() -> Self {
        Self::with(ProcessHost::new)
    }

    fn with(host: impl Fn(&Layout) -> Result<ProcessHost, crate::files::FileError>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path().join("state"), Some(dir.path().join("run")));
        let host = host(&layout).unwrap();
        let gate = layout.state().join("gate");
        for pipe in [&gate, &layout.state().join("never")] {
            mknodat(CWD, pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        // Also opened for writing: no end of file between two writers.
        let gate = pipe::OpenOptions::new().read_write(true).open_receiver(gate).unwrap();
        Self { dir, layout, host, gate: BufReader::new(gate).lines() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.layout.state().join(name)
    }

    fn spec(&self, program: &str, args: &[&str]) -> ProcessSpec {
        ProcessSpec {
            start_env: BTreeMap::new(),
            program: program.into(),
            arg0: None,
            args: args.iter().map(ToString::to_string).collect(),
            env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            dir: self.layout.state().to_owned(),
            output: self.path("log"),
            user: None,
            ready: None,
        }
    }

    /// A script, run in the state directory, that may write lines to `gate`, and that waits for ever in `: < never`.
    fn sh(&self, script: &str) -> ProcessSpec {
        self.spec("/bin/sh", &["-c", script])
    }

    async fn start(&self, script: &str) -> Identity {
        self.host.spawn(&id(), &self.sh(script)).await.unwrap().identity
    }

    async fn line(&mut self) -> String {
        soon(self.gate.next_line()).await.unwrap().unwrap()
    }

    /// The process whose pid the script writes to `gate`.
    async fn announced(&mut self) -> Identity {
        let pid = self.line().await.parse().unwrap();
        identity_of(pid).expect("it is alive or at least a zombie")
    }

    async fn end(&self, identity: &Identity) {
        self.host.reap(&id(), identity).await.unwrap();
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap()
    }
}

impl Drop for Bench {
    /// A failed test leaves nobody behind either.
    fn drop(&mut self) {
        let _ = survivors::reap_all_blocking(&self.layout);
    }
}

fn id() -> ComponentId {
    ComponentId::new("demo", "kine")
}
