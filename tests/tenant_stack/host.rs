//! The smallest host that can run blueprints: one step after the other, real processes, nothing restarted.

use berth::layout::Layout;
use berth::tenant::ports::Ports;
use berth::tenant::{Accounts, Tenant};
use berth_actors::host::{
    Blueprint, Context, Distribution, GateError, Guard, Listens, PrepareError, Running, WaitNote,
};
use berth_actors::identity::Identity;
use berth_actors::spec::{ProcessSpec, Signal, Step, StopPlan, User};
use rustix::process::{Pid, kill_process};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tokio::process::{Child, Command};

/// Root may not run postgres: everything runs as `nobody` then.
const NOBODY: User = User { uid: 65534, gid: 65534 };

/// A state directory for one tenant, removed at the end.
pub(crate) struct Place {
    pub(crate) tenant: Tenant,
    _state: tempfile::TempDir,
}

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
        let state = tempfile::tempdir().unwrap();
        let root = rustix::process::geteuid().is_root();
        let layout = Layout::new(state.path().join("s"), Some(state.path().join("r")));
        for dir in
            [state.path().to_owned(), layout.state().to_owned(), layout.clusters(), layout.run().to_owned()]
        {
            std::fs::create_dir_all(&dir).unwrap();
            std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o711)).unwrap();
        }
        let own = account_name(rustix::process::geteuid().as_raw());
        let accounts = Accounts {
            owner: root.then_some(NOBODY),
            component: if root { account_name(NOBODY.uid) } else { own.clone() },
            daemon: own,
            maker: None,
        };
        // Away from the default range: whatever else runs on this host leases from there.
        let first = 17_500 + u16::try_from(std::process::id() % 120).unwrap() * 100;
        let ports = Ports::with_range(layout.state().join("ports.json"), first..=first + 99);
        let port = ports.lease(name, 1).unwrap();
        let tenant = Tenant::new(
            &layout,
            name,
            "uid-1",
            Distribution::Kubernetes,
            berth::testing::components().clone(),
            accounts,
            port,
        )
        .unwrap();
        Self { tenant, _state: state }
    }

    /// Replaces a file of the tenant, as its owner.
    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) {
        std::fs::write(path, bytes).unwrap();
        if let Some(user) = self.tenant.accounts().owner {
            chown(path, Some(user.uid), Some(user.gid)).unwrap();
        }
    }
}

fn account_name(uid: u32) -> String {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let mut fields = passwd.lines().map(|line| line.split(':').collect::<Vec<_>>());
    fields.find(|f| f[2] == uid.to_string()).unwrap()[0].to_owned()
}

/// An identity guard that has nothing against anybody.
pub(crate) struct Agreeable;

#[async_trait::async_trait]
impl Guard for Agreeable {
    async fn check(&self, _note: &WaitNote) -> Result<(), PrepareError> {
        Ok(())
    }

    async fn lost(&self) {
        std::future::pending::<()>().await;
    }
}

/// One live component. Killed when dropped, so that a failed test leaves nothing.
pub(crate) struct Life {
    pub(crate) name: String,
    pub(crate) child: Child,
    pub(crate) running: Running,
    pub(crate) spec: ProcessSpec,
}

/// Prepares and spawns; knows its port where it has one.
pub(crate) async fn spawn(name: &str, blueprint: &dyn Blueprint, context: &Context) -> Life {
    let spec = blueprint.prepare(context, &WaitNote::default()).await.unwrap();
    launch(name, blueprint, spec).await
}

/// Spawns what was prepared.
pub(crate) async fn launch(name: &str, blueprint: &dyn Blueprint, spec: ProcessSpec) -> Life {
    let log = berth::files::open_log(&spec.output, spec.user).unwrap();
    let log_offset = log.metadata().unwrap().len();
    let mut command = Command::new(&spec.program);
    command
        .args(&spec.args)
        .env_clear()
        .envs(spec.env.iter().chain(&spec.start_env))
        .current_dir(&spec.dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .kill_on_drop(true);
    if let Some(user) = spec.user {
        command.uid(user.uid).gid(user.gid);
    }
    let mut child = command.spawn().unwrap();
    let identity = Identity { boot_id: "".into(), pid: child.id().unwrap(), start_time: 0 };
    let address = match blueprint.listens() {
        Listens::No => None,
        Listens::OneTcp => Some(discover(&mut child, &spec.output).await),
        Listens::Fixed(address) => Some(address),
    };
    let running = Running { identity, address, log: spec.output.clone(), log_offset };
    Life { name: name.to_owned(), child, running, spec }
}

/// Waits for the gate, not longer than the process lives.
pub(crate) async fn ready(
    blueprint: &dyn Blueprint,
    life: &mut Life,
    deadline: Duration,
) -> Result<(), GateError> {
    let note = WaitNote::default();
    tokio::select! {
        gate = blueprint.ready(&life.running, &note) => gate,
        status = life.child.wait() => {
            Err(GateError::Hopeless(format!("{} ended: {}\n{}", life.name, status.unwrap(), log_tail(&life.running.log))))
        }
        () = tokio::time::sleep(deadline) => {
            panic!("{} waits for: {}\n{}", life.name, note.get(), log_tail(&life.running.log))
        }
    }
}

/// Every step in order, each through its gate. Prints what each took.
pub(crate) async fn start(steps: &[Step]) -> Vec<Life> {
    let (mut lives, mut context, begin) = (Vec::new(), Context::default(), Instant::now());
    for step in steps {
        let at = Instant::now();
        let mut life = spawn(&step.component, &*step.blueprint, &context).await;
        let spawned = at.elapsed();
        ready(&*step.blueprint, &mut life, step.start_deadline).await.unwrap();
        println!("{:24} spawned {spawned:>10.2?}  ready {:>10.2?}", step.component, at.elapsed());
        context.upstream.insert(step.component.clone(), life.running.clone());
        lives.push(life);
    }
    println!("{:24} {:>29.2?}", "all", begin.elapsed());
    lives
}

/// Every step in reverse. Returns how each ended, last step first.
pub(crate) async fn stop(steps: &[Step], mut lives: Vec<Life>) -> Vec<ExitStatus> {
    let mut ends = Vec::new();
    while let Some(mut life) = lives.pop() {
        let plan = steps.iter().find(|step| step.component == life.name).unwrap().stop;
        let at = Instant::now();
        let status = end(&mut life, plan).await;
        println!("{:24} stopped {:>10.2?}  {status}", life.name, at.elapsed());
        ends.push(status);
    }
    ends
}

pub(crate) async fn end(life: &mut Life, plan: StopPlan) -> ExitStatus {
    signal(life, plan.signal);
    tokio::time::timeout(plan.deadline, life.child.wait())
        .await
        .unwrap_or_else(|_| panic!("{} does not stop\n{}", life.name, log_tail(&life.running.log)))
        .unwrap()
}

/// As the tree would: the signal, the same once more where the plan says so, SIGKILL never. Also how often it was asked.
pub(crate) async fn end_by_plan(life: &mut Life, plan: StopPlan) -> (ExitStatus, u8) {
    signal(life, plan.signal);
    let again = plan.repeat_after.expect("its plan repeats the signal");
    if let Ok(status) = tokio::time::timeout(again, life.child.wait()).await {
        return (status.unwrap(), 1);
    }
    (end(life, plan).await, 2)
}

pub(crate) async fn kill(life: &mut Life) {
    life.child.start_kill().unwrap();
    assert_eq!(life.child.wait().await.unwrap().signal(), Some(9));
}

fn signal(life: &Life, signal: Signal) {
    let signal = match signal {
        Signal::Int => rustix::process::Signal::INT,
        Signal::Term => rustix::process::Signal::TERM,
        Signal::Kill => rustix::process::Signal::KILL,
    };
    let pid = Pid::from_raw(life.running.identity.pid.cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// The one TCP port the process listens on, from its open sockets.
async fn discover(child: &mut Child, log: &Path) -> SocketAddr {
    let pid = child.id().unwrap();
    let mut turn = tokio::time::interval(Duration::from_millis(10));
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            panic!("ended before it listened: {status}\n{}", log_tail(log));
        }
        let sockets: Vec<String> = std::fs::read_dir(format!("/proc/{pid}/fd"))
            .unwrap()
            .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok()?.to_str().map(str::to_owned))
            .collect();
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let listening = table
            .lines()
            .skip(1)
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .find(|f| f[3] == "0A" && sockets.contains(&format!("socket:[{}]", f[9])));
        if let Some(fields) = listening {
            let port = u16::from_str_radix(fields[1].split_once(':').unwrap().1, 16).unwrap();
            return SocketAddr::from(([127, 0, 0, 1], port));
        }
        turn.tick().await;
    }
}

pub(crate) fn log_tail(log: &Path) -> String {
    let text = String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
