//! One stand-in process with its root, as a slot runs it.

use crate::client::Client;
use crate::lines::{Lines, PATIENCE};
use berth::testing::components;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

pub const FRONT: &str = "https://127.0.0.1:6443";
const FILES: [&str; 5] =
    ["apiserver.crt", "apiserver.key", "sa.key", ".admin-token-store", "admin.kubeconfig"];

pub struct Slot {
    child: Child,
    pub root: PathBuf,
    pub log: Lines,
}

/// A slot's argv; later flags win.
pub fn command(root: &Path, etcd: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kcp-stand-in"));
    command
        .arg("start")
        .arg(format!("--root-directory={}", root.display()))
        .arg(format!("--etcd-servers={etcd}"))
        .args(["--bind-address=127.0.0.1", "--secure-port=0", "--experimental-bind-free-port"])
        .args(["--feature-gates=WorkspaceMounts=true", "--enable-leader-election"])
        .arg(format!("--shard-base-url={FRONT}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

impl Slot {
    /// With `extra` flags and `knobs` in its environment.
    pub fn start(root: PathBuf, etcd: &str, extra: &[&str], knobs: &[(&str, &str)]) -> Self {
        let mut child = command(&root, etcd)
            .args(extra)
            .env("KCP_STANDIN_KUBE_APISERVER", &components().kube_apiserver.path)
            .envs(knobs.iter().copied())
            .spawn()
            .unwrap();
        let log = Lines::of(child.stderr.take().unwrap());
        Self { child, root, log }
    }

    pub async fn port(&mut self) -> u16 {
        let line = self.log.until("Serving securely on 127.0.0.1:").await;
        line.rsplit(':').next().unwrap().parse().unwrap()
    }

    /// A client with the token of `user` in this slot's kubeconfig.
    pub async fn client(&mut self, user: &str) -> Client {
        let port = self.port().await;
        let ca = fs::read(self.root.join("apiserver.crt")).unwrap();
        Client::new(port, &ca, Some(&self.token(user)))
    }

    pub fn token(&self, user: &str) -> String {
        let text = fs::read_to_string(self.root.join("admin.kubeconfig")).unwrap();
        let entry = text.split(&format!("- name: {user}\n")).nth(1).unwrap();
        entry.split("token: ").nth(1).unwrap().lines().next().unwrap().to_owned()
    }

    /// Until /readyz says so: it is the only thing that tells, so it is asked again and again, as the daemon does.
    pub async fn ready(&mut self) -> Client {
        let client = self.client("shard-admin").await;
        let wait = async {
            while client.get("/readyz").await.unwrap().0 != 200 {
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::time::timeout(PATIENCE, wait).await.expect("ready");
        client
    }

    /// The identity this process campaigns with, from its log.
    pub async fn identity(&mut self) -> String {
        let line = self.log.until("identity=\"").await;
        line.split("identity=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().unwrap().cast_signed()).unwrap()
    }

    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The exit code; `None` for a death by signal.
    pub async fn exit(&mut self) -> Option<i32> {
        tokio::time::timeout(PATIENCE, self.child.wait()).await.expect("an exit").unwrap().code()
    }

    /// The five files in a fresh root, as a handover stages them.
    pub fn stage(&self, root: PathBuf) -> PathBuf {
        fs::create_dir(&root).unwrap();
        for name in FILES {
            fs::copy(self.root.join(name), root.join(name)).unwrap();
        }
        root
    }
}

/// LISTEN sockets of exactly this process, not of its children.
pub fn listeners(pid: Pid) -> usize {
    let inodes: Vec<String> = fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero()))
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .flat_map(|table| fs::read_to_string(table).unwrap().lines().map(str::to_owned).collect::<Vec<_>>())
        .filter(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            fields.get(3) == Some(&"0A")
                && fields.get(9).is_some_and(|inode| inodes.iter().any(|i| i == inode))
        })
        .count()
}

pub fn children(pid: Pid) -> Vec<i32> {
    let pid = pid.as_raw_nonzero();
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    text.split_whitespace().map(|child| child.parse().unwrap()).collect()
}
