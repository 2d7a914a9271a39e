//! One Berth under storms: its directories, its daemon, and the fault that is armed for it.

use super::args::Kind;
use super::census::Census;
use super::daemon;
use berth::control::Client;
use berth::fault;
use berth::layout::Layout;
use berth_actors::host::TenantRecord;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The tenant that is always there; [`EXTRA`] comes and goes.
pub const DEMO: &str = "demo";
pub const EXTRA: &str = "extra";
/// A file system up to this size, in bytes, was made to be filled.
const SMALL: u64 = 256 << 20;

pub struct System {
    pub kind: Kind,
    pub layout: Layout,
    pub front: SocketAddr,
    /// The daemon's limit of open files, where it is to be a low one.
    pub open_files: Option<u64>,
    dir: Option<tempfile::TempDir>,
    daemon: Option<Child>,
    /// Daemons that were started.
    pub daemons: usize,
}

impl System {
    pub fn new(kind: Kind) -> Self {
        let dir = tempfile::Builder::new()
            .prefix("berth-chaos-")
            .permissions(fs::Permissions::from_mode(0o711))
            .tempdir()
            .unwrap();
        let layout = Layout::new(dir.path().join("state"), Some(dir.path().join("run")));
        let front = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        Self { kind, layout, front, open_files: None, dir: Some(dir), daemon: None, daemons: 0 }
    }

    pub fn client(&self) -> Client {
        Client::new(self.layout.control_socket())
    }

    pub fn census(&self) -> Census {
        Census::take(&self.layout)
    }

    fn beside(&self, name: &str) -> PathBuf {
        self.layout.state().with_file_name(name)
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.beside("daemon.log")).unwrap_or_default()
    }

    /// Starts a daemon unless one runs.
    pub fn ensure_daemon(&mut self) {
        if self.daemon.as_mut().is_some_and(|child| child.try_wait().unwrap().is_none()) {
            return;
        }
        let log = fs::File::options().create(true).append(true).open(self.beside("daemon.log")).unwrap();
        let mut command = match self.kind {
            Kind::StandIn => {
                let mut command = Command::new(std::env::current_exe().unwrap());
                command.arg(daemon::ROLE).args([self.layout.state(), self.layout.run()]);
                command.arg(self.front.to_string()).args(self.open_files.map(|files| files.to_string()));
                command
            }
            Kind::Real => self.dev(),
        };
        command.env(fault::ARMED_IN, self.beside("fault")).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let program = command.get_program().to_owned();
        let started = command.spawn();
        self.daemon = Some(
            started.unwrap_or_else(|error| panic!("{} ({error}): cargo build makes it", program.display())),
        );
        self.daemons += 1;
    }

    /// What a daemon on real components is: `berth`, beside this program.
    pub fn program() -> PathBuf {
        berth::testing::components().kcp.path.clone()
    }

    fn dev(&self) -> Command {
        let components = berth::testing::components();
        let mut command = Command::new(Self::program());
        command.args(["dev", "--front", &self.front.to_string()]);
        let programs: [(&str, &Path); 5] = [
            ("--postgres", &components.postgres_bin),
            ("--openbao", &components.openbao.path),
            ("--kine", &components.kine.path),
            ("--kube-apiserver", &components.kube_apiserver.path),
            ("--kube-controller-manager", &components.kube_controller_manager.path),
        ];
        for (flag, path) in programs {
            command.arg(flag).arg(path);
        }
        command.env("BERTH_STATE", self.layout.state()).env("BERTH_RUN_DIR", self.layout.run());
        command.env("NO_COLOR", "1");
        command
    }

    pub fn signal_daemon(&mut self, signal: Signal) {
        // Our own child, not waited for yet: the pid is its.
        if let Some(pid) = self.daemon.as_ref().and_then(|child| Pid::from_raw(child.id().cast_signed())) {
            let _ = kill_process(pid, signal);
        }
    }

    pub fn kill_daemon(&mut self) {
        if let Some(mut child) = self.daemon.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub fn daemon_pid(&self) -> u32 {
        self.daemon.as_ref().expect("it was started").id()
    }

    pub fn daemon_is_dead(&mut self) -> bool {
        self.daemon.as_mut().is_none_or(|child| child.try_wait().unwrap().is_some())
    }

    pub fn arm(&self, place: &str, skip: u64, act: &str) {
        let _ = fs::remove_file(self.beside("fault.struck"));
        // Whole or not at all: the daemon reads it at any moment. The number tells two orders apart that say the same.
        let order = format!("{place} {skip} {act} {}", rand::random::<u32>());
        fs::write(self.beside("fault.next"), order).unwrap();
        fs::rename(self.beside("fault.next"), self.beside("fault")).unwrap();
    }

    /// What the daemon, and each that comes after it, takes for the time.
    pub fn turn_clock(&self, hours: i64) {
        fs::write(self.beside("fault.clock.next"), (hours * 3600).to_string()).unwrap();
        fs::rename(self.beside("fault.clock.next"), self.beside("fault.clock")).unwrap();
    }

    /// Takes every byte that is left, where the storm has a file system of its own; tells whether it has.
    pub fn fill_disk(&self) -> bool {
        let filler = self.beside("filler");
        let size = rustix::fs::statvfs(self.layout.state()).map(|of| of.f_blocks * of.f_frsize);
        if size.is_ok_and(|size| size > SMALL) {
            return false;
        }
        let mut file = fs::File::create(filler).unwrap();
        let mut chunk = 1 << 16;
        while chunk > 0 {
            match file.write(&vec![0; chunk]) {
                Ok(written) if written > 0 => {}
                _ => chunk /= 2,
            }
        }
        true
    }

    pub fn free_disk(&self) {
        let _ = fs::remove_file(self.beside("filler"));
    }

    /// Stand-ins that ended on SIGTERM, in their order.
    pub fn ends(&self) -> Vec<String> {
        let text = fs::read_to_string(self.layout.state().join("ends")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    pub fn forget_ends(&self) {
        let _ = fs::remove_file(self.layout.state().join("ends"));
    }

    /// The place that struck since it was armed.
    pub fn struck(&self) -> Option<String> {
        fs::read_to_string(self.beside("fault.struck")).ok()
    }

    pub fn disarm(&self) -> Option<String> {
        let _ = fs::remove_file(self.beside("fault"));
        let struck = self.struck();
        let _ = fs::remove_file(self.beside("fault.struck"));
        struck
    }

    /// The clusters there are, as their files say.
    pub fn records(&self) -> BTreeMap<String, TenantRecord> {
        let Ok(entries) = fs::read_dir(self.layout.clusters()) else { return BTreeMap::new() };
        let read = |path: PathBuf| serde_json::from_slice::<TenantRecord>(&fs::read(path).ok()?).ok();
        entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
            .filter_map(|path| read(path).map(|record| (record.name.clone(), record)))
            .collect()
    }

    /// Keeps the directory of a failed storm for whoever looks into it.
    pub fn keep(&mut self) -> PathBuf {
        self.dir.take().map(tempfile::TempDir::keep).unwrap_or_default()
    }
}

impl Drop for System {
    /// Whatever happened: nothing goes on running.
    fn drop(&mut self) {
        self.signal_daemon(Signal::CONT);
        self.kill_daemon();
        if !self.layout.state().exists() {
            return;
        }
        loop {
            let left = self.census().0;
            if left.is_empty() {
                return;
            }
            for process in &left {
                process.signal(Signal::KILL);
            }
            std::thread::yield_now();
        }
    }
}
