//! A whole Berth for one test: `berth dev` on real components, in a directory of its own, on a port of its own.
//!
//! A test waits for what it wants by reading the event stream and looking at the tree after each event; nothing sleeps.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    unreachable_pub,
    reason = "a test that panics has failed; each test file uses its own part; a test may wait for a process; every test file is a crate of its own"
)]

pub mod api;
pub mod host;
pub mod release;

use berth::control::Client;
use berth::control::api::{EventQuery, StampedEvent};
use berth::layout::Layout;
use berth_actors::status::{ChainState, ChainStatus, ChildState, ChildStatus, TreeStatus};
use futures::StreamExt;
use std::collections::BTreeMap;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Two whole systems at once would measure the machine, not Berth: tests of one binary take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Longer than the longest bring-up seen on two busy cores, short enough to end a hung test.
const PATIENCE: Duration = Duration::from_secs(180);

/// A state directory that outlives its daemons, so that a test can start a second one on it.
pub struct Home {
    dir: tempfile::TempDir,
    pub front: SocketAddr,
    _turn: MutexGuard<'static, ()>,
}

impl Home {
    pub fn new() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = tempfile::Builder::new()
            .prefix("berth-test-")
            .permissions(fs::Permissions::from_mode(0o711))
            .tempdir()
            .unwrap();
        Self { dir, front: free_address(), _turn: turn }
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub fn layout(&self) -> Layout {
        Layout::new(self.state(), Some(self.dir.path().join("run")))
    }

    pub fn client(&self) -> Client {
        Client::new(self.layout().control_socket())
    }

    /// Collects, until the daemon has ended, which component went down, in order.
    pub async fn downs(&self) -> tokio::task::JoinHandle<Vec<String>> {
        let events = self.client().events(EventQuery { follow: true }).await.unwrap();
        tokio::spawn(async move {
            let (mut events, mut text) = (Box::pin(events), Vec::new());
            while let Some(Ok(chunk)) = events.next().await {
                text.extend_from_slice(&chunk);
            }
            String::from_utf8(text)
                .unwrap()
                .lines()
                .filter_map(|line| serde_json::from_str::<StampedEvent>(line).ok())
                .filter(|stamped| stamped.event.what == "down" && stamped.event.subject.contains('/'))
                .map(|stamped| stamped.event.subject)
                .collect()
        })
    }

    /// `berth` with this home's directories.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_berth"));
        command
            .args(arguments)
            .env("BERTH_STATE", self.state())
            .env("BERTH_RUN_DIR", self.layout().run())
            .env("NO_COLOR", "1");
        command
    }

    /// Runs a command to its end.
    pub fn berth(&self, arguments: &[&str]) -> Output {
        self.command(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// Runs a command that must succeed; returns what it printed.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let output = self.berth(arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "berth {arguments:?}: {}\n{text}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        text
    }

    /// The same, once the daemon's control socket is there.
    pub async fn ok_soon(&self, dev: &Dev<'_>, arguments: &[&str]) -> String {
        dev.until("the control API", |_| true).await;
        self.ok(arguments)
    }

    /// Starts `berth dev` with the components of the test run and `environment` beside the usual one.
    pub fn dev(&self, environment: &[(&str, &str)]) -> Dev<'_> {
        self.run(&self.dev_arguments().iter().map(String::as_str).collect::<Vec<_>>(), environment)
    }

    /// The same with a cluster of another name.
    pub fn dev_of(&self, tenant: &str) -> Dev<'_> {
        let mut arguments = self.dev_arguments();
        arguments.extend(["--tenant".to_owned(), tenant.to_owned()]);
        self.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), &[])
    }

    /// `berth dev` whose reader has gone away.
    pub fn dev_unread(&self) -> Dev<'_> {
        let mut child = self
            .command(&self.dev_arguments().iter().map(String::as_str).collect::<Vec<_>>())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        Dev { home: self, child: Some(child), log: PathBuf::from("/dev/null") }
    }

    /// The daemon of a configuration file.
    pub fn up(&self, configuration: &Path) -> Dev<'_> {
        self.run(&["up", "--config", configuration.to_str().unwrap()], &[])
    }

    fn dev_arguments(&self) -> Vec<String> {
        let components = berth::testing::components();
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let mut arguments = vec!["dev".to_owned(), "--front".to_owned(), self.front.to_string()];
        for (flag, value) in [
            ("--postgres", path(&components.postgres_bin)),
            ("--openbao", path(&components.openbao.path)),
            ("--kine", path(&components.kine.path)),
            ("--kube-apiserver", path(&components.kube_apiserver.path)),
            ("--kube-controller-manager", path(&components.kube_controller_manager.path)),
        ] {
            arguments.extend([flag.to_owned(), value]);
        }
        arguments
    }

    /// A configuration for `berth up` with the components of the test run, and `more` at its top.
    pub fn config(&self, more: &str) -> PathBuf {
        let arguments = self.dev_arguments();
        let components = arguments[3..].chunks(2).map(|pair| {
            let key = pair[0].trim_start_matches("--").replace('-', "_");
            format!("{key} = {:?}\n", pair[1])
        });
        let components: String = components.collect();
        let path = self.dir.path().join("berth.toml");
        let text = format!("{more}\n[front]\nlisten = \"{}\"\n[components]\n{components}", self.front);
        fs::write(&path, text).unwrap();
        path
    }

    /// Starts a daemon.
    pub fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Dev<'_> {
        self.launch(self.command(arguments).envs(environment.iter().copied()).stdin(Stdio::null()))
    }

    /// Starts a command whose end the test waits for later.
    pub fn run_in_background(&self, arguments: &[&str]) -> Dev<'_> {
        self.run(arguments, &[])
    }

    /// Starts a daemon by a command of the test's own making.
    pub fn launch(&self, command: &mut Command) -> Dev<'_> {
        let log = self.dir.path().join("daemon.log");
        let out = fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        let child = command.stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap();
        Dev { home: self, child: Some(child), log }
    }
}

/// A running daemon.
pub struct Dev<'a> {
    home: &'a Home,
    child: Option<Child>,
    log: PathBuf,
}

impl Dev<'_> {
    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Everything that should run does.
    pub async fn ready(&self) -> TreeStatus {
        self.until("everything to be ready", all_ready).await
    }

    /// Looks at the tree after each of its events until `wanted` holds.
    pub async fn until(&self, what: &str, wanted: impl Fn(&TreeStatus) -> bool) -> TreeStatus {
        let client = self.home.client();
        let mut last = None;
        let wait = async {
            loop {
                let Ok(events) = client.events(EventQuery { follow: true }).await else {
                    // The control socket is not there yet: its directory tells when it is.
                    host::created(&self.home.layout().control_socket()).await;
                    continue;
                };
                let mut events = Box::pin(events);
                loop {
                    if let Ok(status) = client.status().await {
                        if wanted(&status) {
                            return status;
                        }
                        last = Some(status);
                    }
                    if !matches!(events.next().await, Some(Ok(_))) {
                        break;
                    }
                }
            }
        };
        let Ok(status) = tokio::time::timeout(PATIENCE, wait).await else {
            panic!("waited in vain for {what}: {last:#?}\n{}", self.output());
        };
        status
    }

    /// Ctrl-C; returns how it ended.
    pub fn stop(mut self) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        host::signal(child.id(), rustix::process::Signal::INT);
        child.wait().unwrap()
    }

    /// SIGTERM, as systemd ends a service; returns how it ended.
    pub fn terminate(mut self) -> ExitStatus {
        let mut child = self.child.take().unwrap();
        host::signal(child.id(), rustix::process::Signal::TERM);
        child.wait().unwrap()
    }

    /// Waits until it has ended by itself; returns how.
    pub fn ended(mut self) -> ExitStatus {
        self.child.take().unwrap().wait().unwrap()
    }

    /// Takes the daemon away without a word.
    pub fn kill(mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Dev<'_> {
    /// A failed test leaves nothing running.
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            host::signal(child.id(), rustix::process::Signal::TERM);
            let _ = child.wait();
            if std::thread::panicking() {
                eprintln!("{}", self.output());
            }
        }
    }
}

pub fn all_ready(status: &TreeStatus) -> bool {
    let ready = |chain: &ChainStatus| chain.state == ChainState::Ready;
    status.front.target.is_some()
        && status.store.as_ref().is_some_and(ready)
        && !status.tenants.is_empty()
        && status.tenants.iter().all(ready)
}

pub fn tenant<'a>(status: &'a TreeStatus, name: &str) -> &'a ChainStatus {
    status.tenants.iter().find(|chain| chain.name == name).expect("the tenant is in the tree")
}

pub fn child<'a>(chain: &'a ChainStatus, name: &str) -> &'a ChildStatus {
    chain.children.iter().find(|child| child.name == name).expect("the component is in the chain")
}

/// Name and pid of every ready component of a chain.
pub fn pids(chain: &ChainStatus) -> Vec<(String, u32)> {
    chain
        .children
        .iter()
        .filter(|child| child.state == ChildState::Ready)
        .filter_map(|child| Some((child.name.clone(), child.pid?)))
        .collect()
}

/// Every process of the tree, by name.
pub fn everything(status: &TreeStatus) -> BTreeMap<String, u32> {
    let chains = status.store.iter().chain(&status.slots).chain(&status.tenants);
    let named = |chain: &ChainStatus| {
        let name = chain.name.clone();
        pids(chain).into_iter().map(move |(component, pid)| (format!("{name}/{component}"), pid))
    };
    chains.flat_map(named).collect()
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}
