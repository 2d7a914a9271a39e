//! A Berth of its own for a load: `berth up` on real components and stand-in slots, without a cluster, in a directory that
//! goes with it.

use berth::control::api::{EventQuery, StampedEvent};
use berth::control::{Client, ClientError};
use berth::fault;
use berth::layout::Layout;
use berth_actors::status::{ChainStatus, ChildState, TreeStatus};
use futures::{Stream, StreamExt};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// Longer than the longest bring-up seen on two busy cores.
const PATIENCE: Duration = Duration::from_secs(180);
/// Without an event for so long, the tree is looked at all the same.
const SILENCE: Duration = Duration::from_secs(5);
/// How often the stand-ins look at their lease: a run has a hundred handovers, and each waits for that.
const LEASE_RETRY: &str = "0.3";

pub struct Berth {
    pub layout: Layout,
    pub front: SocketAddr,
    daemon: Option<Child>,
    dir: tempfile::TempDir,
}

impl Berth {
    /// `goaway`: the chance both slots run with.
    pub fn new(goaway: Option<&str>) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("berth-load-")
            .permissions(fs::Permissions::from_mode(0o711))
            .tempdir()
            .unwrap();
        let layout = Layout::new(dir.path().join("state"), Some(dir.path().join("run")));
        let front = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let berth = Self { layout, front, daemon: None, dir };
        fs::write(berth.beside("berth.toml"), berth.configuration(goaway.unwrap_or("0"))).unwrap();
        berth
    }

    fn configuration(&self, goaway: &str) -> String {
        let components = berth::testing::components();
        let paths: [(&str, &Path); 5] = [
            ("postgres", &components.postgres_bin),
            ("openbao", &components.openbao.path),
            ("kine", &components.kine.path),
            ("kube_apiserver", &components.kube_apiserver.path),
            ("kube_controller_manager", &components.kube_controller_manager.path),
        ];
        let paths = paths.map(|(key, path)| format!("{key} = \"{}\"", path.display())).join("\n");
        format!(
            "state_dir = \"{}\"\nrun_dir = \"{}\"\nstop_children = true\n[front]\nlisten = \"{}\"\n[kcp]\ngoaway_chance = {goaway}\n[components]\n{paths}\n",
            self.layout.state().display(),
            self.layout.run().display(),
            self.front
        )
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn client(&self) -> Client {
        Client::new(self.layout.control_socket())
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kcp().join("admin.kubeconfig")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.beside("daemon.log")).unwrap_or_default()
    }

    /// The last lines of the daemon and of both slots, for whoever asks why a run failed.
    pub fn last_words(&self) -> String {
        let tail = |path: &Path| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(25)..].join("\n");
            format!("--- {}\n{last}\n", path.display())
        };
        let slots = ["a", "b"].map(|slot| self.layout.kcp().join(format!("slot-{slot}/log/kcp.log")));
        let backends = ["a", "b"]
            .map(|slot| self.layout.kcp().join(format!("slot-{slot}/root/.stand-in/kube-apiserver.log")));
        let files = [self.beside("daemon.log")].into_iter().chain(slots).chain(backends);
        files.map(|path| tail(&path)).collect()
    }

    /// The program a daemon is, and may be upgraded to.
    pub fn program() -> PathBuf {
        berth::testing::components().kcp.path.clone()
    }

    /// Starts a daemon, unless one runs.
    pub fn ensure_daemon(&mut self) {
        if self.daemon.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none()) {
            return;
        }
        let log = fs::File::options().create(true).append(true).open(self.beside("daemon.log")).unwrap();
        let mut command = Command::new(Self::program());
        command.args(["up", "--config"]).arg(self.beside("berth.toml"));
        // Whoever runs this may have a Berth of their own in the environment, which is stronger than the file.
        command.env("BERTH_STATE", self.layout.state()).env("BERTH_RUN_DIR", self.layout.run());
        command.env(fault::ARMED_IN, self.beside("fault"));
        command.env("KCP_STANDIN_LEASE_RETRY", LEASE_RETRY).env("KCP_STANDIN_HALF_CLOSE", "1");
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        let started = command.spawn();
        self.daemon =
            Some(started.unwrap_or_else(|error| {
                panic!("{} ({error}): cargo build makes it", Self::program().display())
            }));
    }

    /// Whether it ends by itself or by a fault, within a moment: its sockets close before it is gone.
    pub async fn daemon_ends(&mut self) -> bool {
        let Some(mut child) = self.daemon.take() else { return true };
        let exit = async {
            while child.try_wait().unwrap().is_none() {
                sleep(Duration::from_millis(20)).await;
            }
        };
        let ended = timeout(Duration::from_secs(10), exit).await.is_ok();
        self.daemon = Some(child).filter(|_| !ended);
        ended
    }

    pub fn kill_daemon(&mut self) {
        if let Some(mut child) = self.daemon.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// The daemon dies the next time it comes to `place`.
    pub fn arm(&self, place: &str) {
        let order = format!("{place} 0 die {}", rand::random::<u32>());
        fs::write(self.beside("fault.next"), order).unwrap();
        fs::rename(self.beside("fault.next"), self.beside("fault")).unwrap();
    }

    pub fn disarm(&self) {
        let _ = fs::remove_file(self.beside("fault"));
    }

    /// Looks at the tree after each of its events until `wanted` holds; and where none comes for long, because a run of an hour
    /// shall not end with a look that failed.
    pub async fn until(
        &self,
        what: &str,
        wanted: impl Fn(&TreeStatus) -> bool,
    ) -> Result<TreeStatus, String> {
        let wait = async {
            loop {
                if let Ok(mut events) = self.events().await {
                    loop {
                        match self.client().status().await {
                            Ok(status) if wanted(&status) => return status,
                            Ok(_) => {}
                            Err(ClientError::NoDaemon { .. }) => {}
                            Err(error) => println!("while waiting for {what}: {error}"),
                        }
                        if let Ok(None) = timeout(SILENCE, events.next()).await {
                            break;
                        }
                    }
                }
                // Between two daemons.
                sleep(Duration::from_millis(100)).await;
            }
        };
        match timeout(PATIENCE, wait).await {
            Ok(status) => Ok(status),
            Err(_) => Err(format!("waited in vain for {what}\n{}\n{}", self.as_seen_now().await, self.log())),
        }
    }

    /// What an operator would see, for whoever asks why a wait was in vain.
    async fn as_seen_now(&self) -> String {
        let mut text = format!("status: {:#?}\n", self.client().status().await);
        match self.client().events(EventQuery { follow: false }).await {
            Ok(mut chunks) => {
                while let Some(Ok(chunk)) = chunks.next().await {
                    text.push_str(&String::from_utf8_lossy(&chunk));
                }
            }
            Err(error) => text.push_str(&error.to_string()),
        }
        text
    }

    pub async fn serving(&self) -> Result<TreeStatus, String> {
        let ready = |status: &TreeStatus| {
            status.front.target.is_some()
                && status
                    .handover
                    .as_ref()
                    .is_none_or(|handover| handover.outcome != berth_actors::status::HandoverOutcome::Running)
        };
        self.until("kcp to be served", ready).await
    }

    /// Events as they come, until the daemon ends.
    pub async fn events(&self) -> Result<impl Stream<Item = StampedEvent> + Unpin + use<>, String> {
        let chunks =
            self.client().events(EventQuery { follow: true }).await.map_err(|error| error.to_string())?;
        let mut rest = Vec::new();
        let lines = chunks.flat_map(move |chunk| {
            rest.extend(chunk.unwrap_or_default());
            let mut events = Vec::new();
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                events.extend(serde_json::from_slice::<StampedEvent>(&line).ok());
            }
            futures::stream::iter(events)
        });
        Ok(Box::pin(lines))
    }

    /// The pid of a component that runs.
    pub async fn pid(&self, chain: &str, component: &str) -> Option<u32> {
        let status = self.client().status().await.ok()?;
        let mut chains = status.store.iter().chain(&status.slots);
        let chain: &ChainStatus = chains.find(|of| of.name == chain)?;
        let child = chain.children.iter().find(|child| child.name == component)?;
        (child.state == ChildState::Ready).then_some(child.pid)?
    }
}

/// Whether a daemon can be told to die at a place; a release build cannot.
pub fn fault_points_exist() -> bool {
    fault::EXIST
}

pub fn kill(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        // It may have ended by itself meanwhile.
        let _ = kill_process(pid, signal);
    }
}

impl Drop for Berth {
    /// Whatever happened: everything stops in order. A daemon that is gone is started for that.
    fn drop(&mut self) {
        self.disarm();
        self.ensure_daemon();
        if let Some(mut child) = self.daemon.take() {
            kill(child.id(), Signal::TERM);
            let _ = child.wait();
        }
    }
}
