//! The daemon: everything between "these are the settings" and "everything is stopped".
//!
//! `up` and `dev` call [`Daemon::start`] and [`Daemon::stop`]. It wires the adapters to the tree and decides nothing.

mod dev;
mod error;
mod settings;
mod standing;
mod succession;
mod successor;
pub(crate) mod systemd;
mod up;

pub use dev::dev;
pub use error::DaemonError;
pub use settings::Settings;
pub use up::up;

use crate::assets::progress::Progress;
use crate::assets::provision;
use crate::control::daemon::Upgrade;
use crate::control::{ControlServer, DaemonDesk, EventHub, rendezvous};
use crate::discover::{SockDiag, holder_of};
use crate::estate::HostEstate;
use crate::front::{Descriptors, Front, FrontConfig, Misfit};
use crate::kcp::{HandoverFile, KcpClient, KcpConfig, Releases, stand_in, upkeep};
use crate::layout::Layout;
use crate::metrics::MetricsServer;
use crate::off_thread::off_thread;
use crate::preflight;
use crate::process;
use crate::process::lock::StateLock;
use crate::process::{ProcessHost, orphans, survivors};
use crate::tenant::ports::Ports;
use crate::tenant::uids::Uids;
use actix::prelude::*;
use berth_actors::child::actor::Outside;
use berth_actors::host::Journal;
use berth_actors::message::{Command, Refusal, TreeEvent};
use berth_actors::root::{IsUp, Kcp, Root, WhenDown, World};
use rustix::process::{Resource, getrlimit, setrlimit};
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Mutex, broadcast, mpsc};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// Events a slow reader may fall behind before it misses some; the hub behind the control API keeps them longer.
pub(crate) const EVENT_LAG: usize = 1024;

/// How a daemon's life ends.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Ending {
    /// Everything stops, in order.
    Stop,
    /// Everything runs on: the next daemon adopts it.
    Leave,
    /// The same, and this process becomes that daemon.
    Upgrade(PathBuf),
}

/// A running daemon. Dropping it stops nothing.
#[derive(Debug)]
pub struct Daemon {
    pub root: Addr<Root>,
    processes: ProcessHost,
    /// Where clients reach kcp; `None` without kcp.
    pub front: Option<SocketAddr>,
    listener: Option<Front>,
    drain_limit: Duration,
    upgrades: Mutex<mpsc::Receiver<Upgrade>>,
    control: CancellationToken,
    served: actix_rt::task::JoinHandle<()>,
    _lock: StateLock,
}

impl Daemon {
    /// Checks the host, takes the lock, provisions, and builds the tree, which has no orders yet.
    pub async fn start(settings: Settings, progress: &dyn Progress) -> Result<Self, DaemonError> {
        let layout = settings.layout.clone();
        let (checked, account, uids) = (layout.clone(), settings.account.clone(), settings.uids.clone());
        let verdict = off_thread(move || {
            let verdict = preflight::check(&checked, account.as_ref(), &uids)?;
            preflight::create_dirs(&checked)?;
            Ok::<_, DaemonError>(verdict)
        })
        .await?;
        for warning in &verdict.warnings {
            tracing::warn!("{warning}");
        }
        // Each survivor costs a descriptor.
        raise_descriptor_limit();
        let locked = layout.clone();
        let lock = off_thread(move || StateLock::acquire(&locked)).await?;
        let published = layout.clone();
        off_thread(move || rendezvous::publish(&published)).await?;
        // Before the survivors are touched: what cannot be started again must not be stopped.
        let journal = HandoverFile::new(&layout);
        journal.read().await.map_err(DaemonError::Record)?;
        // Before orphans are collected: a survivor that ends meanwhile is not one.
        let hosted = layout.clone();
        let processes =
            off_thread(move || ProcessHost::limited(&hosted, settings.logs, settings.limits, true)).await?;
        orphans::adopt().map_err(DaemonError::Subreaper)?;
        let (mut caps, misfit) = settings.front.within(Descriptors::of_this_process());
        caps.drain.h2_moves_itself = !settings.goaway_chance.is_never();
        let front = settings.kcp.then(|| bind_front(settings.front_listen, caps)).transpose()?;
        if let Some(front) = &front {
            succession::deposit(front);
        }
        let components = provision(&layout, &settings.components, progress).await?;
        let accounts = off_thread(move || settings::accounts(verdict.account.as_ref())).await?;
        let kcp = KcpConfig {
            layout: layout.clone(),
            program: components.kcp.clone(),
            releases: Releases::open(&layout).map_err(DaemonError::Record)?,
            kube_apiserver: components.kube_apiserver.path.clone(),
            stand_in_knobs: stand_in::knobs(),
            front_port: front.as_ref().map_or(settings.front_listen, Front::address).port(),
            shutdown_delay: settings.shutdown_delay,
            ports: settings.slot_ports,
            goaway_chance: settings.goaway_chance,
            owner: accounts.owner,
        };
        let recovered = kcp.clone();
        off_thread(move || recovered.recover()).await.map_err(DaemonError::Record)?;
        let ports = Ports::with_range(layout.state().join("ports.json"), settings.ports.clone());
        let uids = Uids::with_range(layout.state().join("uids.json"), settings.uids);
        let (events, received) = broadcast::channel(EVENT_LAG);
        if let Some(front) = &front {
            actix_rt::spawn(tell_of_front(misfit, front.refusals(), events.clone()));
        }
        let told = events.clone();
        let outside =
            Outside { processes: Arc::new(processes.clone()), listeners: Arc::new(SockDiag), events };
        let estate = HostEstate::new(
            layout.clone(),
            components,
            accounts,
            kcp.clone(),
            (ports, uids),
            settings.policies,
        )
        .with_disk_cap(settings.tenant_disk);
        let world = World {
            outside,
            estate: Arc::new(estate.clone()),
            kcp: front.as_ref().map(|front| Kcp {
                api: Arc::new(KcpClient::new(kcp.clone())),
                journal: Arc::new(journal.clone()),
                dataplane: Arc::new(front.clone()),
                drain_limit: settings.drain_limit,
                canary: settings.canary,
            }),
            starts_at_once: settings.start_concurrency,
        };
        let root = Root::new(world).start();
        actix_rt::spawn(estate.clone().keep_credentials(root.clone().recipient()));
        actix_rt::spawn(estate.clone().keep_noticing());
        actix_rt::spawn(estate.clone().keep_measuring());
        actix_rt::spawn(standing::tell(root.clone(), told.subscribe()));
        actix_rt::spawn(upkeep::tell(Arc::new(estate.clone()), root.clone().recipient(), told));
        let hub = EventHub::new();
        actix_rt::spawn(hub.clone().record_from(received));
        let (desk, upgrades) = DaemonDesk::open();
        let socket = layout.control_socket();
        let server = ControlServer::bind(&socket, desk, root.clone().recipient(), Arc::new(estate), hub)?;
        let control = CancellationToken::new();
        if let Some(listen) = settings.metrics_listen {
            let metrics = MetricsServer::bind(listen, root.clone().recipient()).await?;
            actix_rt::spawn(metrics.serve(control.clone()));
        }
        let served = actix_rt::spawn(server.serve(control.clone()));
        let front_address = front.as_ref().map(Front::address);
        Ok(Self {
            root,
            processes,
            front: front_address,
            listener: front,
            drain_limit: settings.drain_limit,
            upgrades: Mutex::new(upgrades),
            control,
            served,
            _lock: lock,
        })
    }

    /// Gives the tree its orders: what an earlier daemon left is adopted, and what is missing started. Returns once that is
    /// under way, not when everything is ready. Cancel-safe: an end that comes meanwhile waits for it.
    pub async fn up(&self) -> Result<(), DaemonError> {
        self.ask(Command::Up).await
    }

    /// Stops everything in order: tenants together, then the slots, then the store; each chain in reverse.
    async fn stop(&mut self) -> Result<(), DaemonError> {
        let stopped = self.ask(Command::Down).await.map_err(DaemonError::left);
        self.processes.tidy().await;
        if let Some(front) = &self.listener {
            front.close();
        }
        self.end_control().await;
        stopped
    }

    /// Carries its end out, with the lock in hand to the last. An upgrade returns only when it failed, or when the daemon was
    /// `asked` to end in another way meanwhile.
    async fn end(
        mut self,
        ending: Ending,
        asked: &CancellationToken,
        stop_children: bool,
    ) -> Result<(), DaemonError> {
        let program = match ending {
            Ending::Stop => return self.stop().await,
            Ending::Leave => None,
            Ending::Upgrade(program) => Some(program),
        };
        let listener = self.leave().await;
        match program {
            // The next daemon would know nothing of it.
            Some(_) if asked.is_cancelled() && stop_children => self.ask(Command::Down).await,
            Some(program) if !asked.is_cancelled() => Err(succession::exec(&program, listener)),
            _ => Ok(()),
        }
    }

    /// Everything runs on: open connections of the front are drained, new ones wait in the queue of the socket, which is
    /// returned for a successor.
    async fn leave(&mut self) -> Option<TcpListener> {
        // First: no order may come between the drain and the end.
        self.end_control().await;
        let front = self.listener.as_ref()?;
        let reports = front.leave(self.drain_limit).await;
        tracing::info!(?reports, "the front has drained");
        front.listener().ok().flatten()
    }

    async fn end_control(&mut self) {
        self.processes.tidy().await;
        self.control.cancel();
        if (&mut self.served).await.is_err() {
            tracing::warn!("the control API ended badly");
        }
    }

    /// Resolves with the binary to become, once somebody asked for one that proved to be a berth. `checks` are command lines
    /// that it must carry out. Cancel-safe: a wish that is dropped was not granted.
    pub async fn upgrade_asked(&self, checks: &[Vec<OsString>]) -> PathBuf {
        loop {
            let Some(Upgrade { program, answer }) = self.upgrades.lock().await.recv().await else {
                return std::future::pending().await;
            };
            let verdict = match self.root.send(IsUp).await {
                Ok(true) => successor::check(&program, checks).await,
                _ => Err(Refusal::Conflict("the daemon is starting or stopping".to_owned())),
            };
            let is_good = verdict.is_ok();
            // Whoever asked may be gone; the wish stands.
            let _ = answer.send(verdict);
            if is_good {
                return program;
            }
        }
    }

    /// Resolves once somebody had everything stopped through the control API.
    pub async fn down(&self) {
        if let Err(error) = self.root.send(WhenDown).await {
            tracing::error!(%error, "the supervision tree is gone");
        }
    }

    /// One command to the tree, as the control API would give it.
    pub async fn ask(&self, command: Command) -> Result<(), DaemonError> {
        self.root.send(command).await.map_err(DaemonError::Tree)?.map(|_| ()).map_err(DaemonError::Refused)
    }
}

/// Runs a daemon's life on the one arbiter every actor shares.
pub(crate) fn in_runtime(life: impl Future<Output = Result<(), DaemonError>> + 'static) -> ExitCode {
    process::share_one_heap();
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = match builder.enable_all().thread_keep_alive(IDLE_THREADS_STAY).build() {
        Ok(runtime) => runtime,
        Err(error) => return refuse(&DaemonError::Runtime(error)),
    };
    let system = actix::System::with_tokio_rt(move || runtime);
    let ended = system.block_on(life);
    // Dropped, it would wait for threads that may hang in a file system; the end of the process does not.
    std::mem::forget(system);
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&error),
    }
}

/// Threads that wait for files end soon after their work: an idle daemon shall not wake for them one by one.
const IDLE_THREADS_STAY: Duration = Duration::from_secs(2);

/// Says why on standard error.
pub(crate) fn refuse(error: &DaemonError) -> ExitCode {
    // Without a standard error there is nobody to tell.
    let _ = writeln!(io::stderr(), "berth: {error}");
    error.exit().into()
}

/// Cancelled by the first SIGTERM, Ctrl-C, or hang-up of the terminal. Listened for during the whole life, so none is lost
/// between two waits.
pub(crate) fn stop_signal() -> Result<CancellationToken, DaemonError> {
    let heard = |kind| signal(kind).map_err(DaemonError::Signals);
    let (mut terminate, mut interrupt) = (heard(SignalKind::terminate())?, heard(SignalKind::interrupt())?);
    let mut hang_up = heard(SignalKind::hangup())?;
    let asked = CancellationToken::new();
    let teller = asked.clone();
    actix_rt::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = hang_up.recv() => {}
        }
        teller.cancel();
    });
    Ok(asked)
}

/// A daemon that was told to stop before it had adopted anything: what an earlier one left is ended all the same.
async fn interrupted(layout: Layout, stop_children: bool) -> Result<(), DaemonError> {
    if stop_children {
        let locked = layout.clone();
        let _lock = off_thread(move || StateLock::acquire(&locked)).await?;
        for survivor in survivors::reap_all(&layout).await? {
            tracing::warn!("{survivor} of an earlier daemon was ended");
        }
    }
    Err(DaemonError::Interrupted)
}

/// Raises the limit of open files as far as it goes: each child costs one.
pub(crate) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
}

/// What the front has to say for itself, as events.
async fn tell_of_front(
    misfit: Option<Misfit>,
    mut refusals: broadcast::Receiver<String>,
    events: broadcast::Sender<TreeEvent>,
) {
    let tell = |what: String| {
        // Nobody watches the events just now.
        let _ = events.send(TreeEvent { subject: "front".to_owned(), what });
    };
    if let Some(misfit) = misfit {
        tracing::warn!("{misfit}");
        tell(misfit.to_string());
    }
    loop {
        match refusals.recv().await {
            Ok(line) => tell(line),
            // The next line counts for those that were missed.
            Err(RecvError::Lagged(_)) => {}
            Err(RecvError::Closed) => return,
        }
    }
}

/// Structured logs of the daemon itself; `RUST_LOG` chooses what is in them, else `default`.
pub(crate) fn log_to_stderr(default: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    let installed = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(io::stderr().is_terminal())
        .with_writer(io::stderr)
        .try_init();
    if installed.is_err() {
        tracing::debug!("somebody else logs already");
    }
}

/// The socket an earlier daemon left, or a new one.
fn bind_front(listen: SocketAddr, config: FrontConfig) -> Result<Front, DaemonError> {
    if let Some(listener) = succession::inherited(listen) {
        return Front::from_listener(listener, config).map_err(DaemonError::Front);
    }
    Front::bind(listen, config)
        .map_err(|error| error.with_holder(|addr| holder_of(addr).map(|holder| holder.to_string())))
        .map_err(DaemonError::Front)
}
