//! One PostgreSQL with any number of kines on it, in a directory that goes away with the test.

use crate::lines::Lines;
use berth::testing::components;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, SemaphorePermit};

/// PostgreSQL refuses root; `nobody` owns its files then.
const NOBODY: u32 = 65_534;
/// A stack takes a third of a gigabyte and a core for its start.
static STACKS: Semaphore = Semaphore::const_new(2);

pub struct Store {
    postgres: Child,
    kines: Vec<(Child, Lines)>,
    directory: TempDir,
    _permit: SemaphorePermit<'static>,
}

impl Store {
    pub async fn start() -> Self {
        let permit = STACKS.acquire().await.unwrap();
        let directory = TempDir::with_prefix("kcp-").unwrap();
        own(directory.path());
        let bin = &components().postgres_bin;
        let initdb = unprivileged(&bin.join("initdb"))
            .args([
                "-U",
                "postgres",
                "--encoding=UTF8",
                "--locale=C",
                "--auth-local=trust",
                "--auth-host=reject",
            ])
            .args(["--no-sync", "--no-instructions", "-D"])
            .arg(directory.path().join("pg"))
            .kill_on_drop(true)
            .spawn()
            .unwrap()
            .wait_with_output()
            .await
            .unwrap();
        assert!(initdb.status.success(), "{}", String::from_utf8_lossy(&initdb.stderr));
        let mut postgres = unprivileged(&bin.join("postgres"))
            .args(["-c", "listen_addresses=", "-c", "fsync=off", "-D"])
            .arg(directory.path().join("pg"))
            .arg("-k")
            .arg(directory.path())
            .spawn()
            .unwrap();
        let mut log = Lines::of(postgres.stderr.take().unwrap());
        log.until("ready to accept connections").await;
        Self { postgres, kines: Vec::new(), directory, _permit: permit }
    }

    /// Another kine on the same database; its URL.
    pub async fn kine(&mut self) -> String {
        let host = self.directory.path().display();
        let mut kine = Command::new(&components().kine.path)
            .args(["--listen-address", "127.0.0.1:0", "--metrics-bind-address=0", "--log-format=json"])
            .env("KINE_ENDPOINT", format!("postgres://postgres@/kine?host={host}"))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut log = Lines::of(kine.stderr.take().unwrap());
        let line = log.until("Kine available at").await;
        self.kines.push((kine, log));
        let start = line.find("http://").unwrap();
        line[start..].split('"').next().unwrap().to_owned()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // At once, and still with its shared memory removed.
        if let Some(pid) = self.postgres.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            let _ = kill_process(pid, Signal::QUIT);
        }
    }
}

fn own(directory: &Path) {
    if geteuid().is_root() {
        chown(directory, Some(NOBODY), Some(NOBODY)).unwrap();
    }
}

fn unprivileged(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    if geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}
