//! `berth dev`: a whole system in `./.berth` with one cluster, shown as it comes up, until Ctrl-C.

use super::up::cadence;
use super::{Daemon, DaemonError, Ending, Settings, in_runtime, interrupted, stop_signal};
use crate::assets::progress;
use crate::cli::live::{Live, Output};
use crate::cli::{Dev, Place};
use crate::config::{Surroundings, defaults};
use crate::front::FrontConfig;
use crate::kcp;
use crate::layout::Layout;
use crate::logs::Limits;
use crate::policy::Policies;
use crate::preflight::{self, PreflightError};
use crate::process::{self, ComponentLimits};
use crate::tenant::stack;
use actix::Addr;
use berth_actors::host::Distribution;
use berth_actors::message::{Command, Refusal, Reply};
use berth_actors::root::Root;
use berth_actors::status::TreeStatus;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::ExitCode;
use tokio_util::sync::CancellationToken;

/// Where a root daemon keeps what the components' account must be able to reach.
const REACHABLE: &str = "/var/lib";

/// The whole life, top to bottom.
pub fn dev(place: &Place, dev: Dev) -> ExitCode {
    let layout = match place.dev().map_err(DaemonError::CurrentDir).and_then(reachable) {
        Ok(layout) => layout,
        Err(error) => return super::refuse(&error),
    };
    let settings = settings(layout.clone(), &dev);
    in_runtime(async move {
        let (progress, asked) = (progress::for_stderr(), stop_signal()?);
        let daemon = tokio::select! {
            started = Daemon::start(settings, &*progress) => started?,
            () = asked.cancelled() => return interrupted(layout, true).await,
        };
        let mut live = Live::new(Output::Stdout);
        let told = tokio::select! {
            outcome = come_up(&daemon, &mut live, &dev.tenant) => {
                say(&match outcome {
                    Ok(()) => hints(&layout, &daemon, &dev.tenant),
                    Err(error) => format!("{error}\nEverything that came up stays up; Ctrl-C stops it.\n"),
                });
                if dev.components.program("k3s").is_ok_and(|path| path.is_some()) {
                    say(&without_k3s(&daemon, &dev.tenant).await);
                }
                None
            }
            ending = until_told(&daemon, &asked) => Some(ending),
        };
        let ending = match told {
            Some(ending) => ending,
            None => until_told(&daemon, &asked).await,
        };
        if let Ending::Upgrade(program) = &ending {
            say(&format!("{} takes over\n", program.display()));
            return daemon.end(ending, &asked, true).await;
        }
        say("stopping, in reverse order\n");
        let root = daemon.root.clone();
        let now = tree(&root).await.unwrap_or_default();
        let mut live = Live::new(Output::Stdout).since(&now);
        shown(&mut live, &root, daemon.end(ending, &asked, true)).await
    })
}

/// Ctrl-C, SIGTERM, `berth down` or `berth upgrade`. Cancel-safe.
async fn until_told(daemon: &Daemon, asked: &CancellationToken) -> Ending {
    tokio::select! {
        () = asked.cancelled() => Ending::Stop,
        () = daemon.down() => Ending::Stop,
        program = daemon.upgrade_asked(&[]) => Ending::Upgrade(program),
    }
}

fn settings(layout: Layout, dev: &Dev) -> Settings {
    Settings {
        layout,
        components: dev.components.clone(),
        account: None,
        kcp: true,
        front_listen: dev.front,
        front: FrontConfig::default(),
        metrics_listen: None,
        drain_limit: defaults::DRAIN_LIMIT.0.0,
        shutdown_delay: defaults::SHUTDOWN_DELAY.0.0,
        canary: cadence(kcp::defaults::CANARY_INTERVAL, kcp::defaults::CANARY_DEADLINE),
        slot_ports: None,
        goaway_chance: defaults::GOAWAY_CHANCE.0,
        stop_children: true,
        start_concurrency: usize::from(defaults::start_concurrency(&Surroundings::read()).0),
        logs: Limits::default(),
        // As in a configuration that says nothing: a core dump holds every key of its process.
        limits: ComponentLimits::new([(
            "default".to_owned(),
            process::Limits { core_size: Some(0), ..process::Limits::default() },
        )]),
        ports: defaults::PORTS.0.ports(),
        uids: uids(),
        tenant_disk: None,
        policies: Policies::default(),
    }
}

/// The customary ones; none in a container that does not know them: nobody is there to choose others.
fn uids() -> Range<u32> {
    let first = defaults::FIRST_UID.0;
    let range = first..first + defaults::UIDS.0;
    if preflight::are_mapped(&range) { range } else { 0..0 }
}

/// The tenant is created, or found as it was; then everything is ready, or has given up.
async fn come_up(daemon: &Daemon, live: &mut Live, tenant: &str) -> Result<(), DaemonError> {
    let root = daemon.root.clone();
    let work = async {
        daemon.up().await?;
        match daemon.ask(Command::CreateTenant { name: tenant.to_owned() }).await {
            // Whoever paused it resumes it, and needs this daemon for that.
            Err(DaemonError::Refused(Refusal::AlreadyExists(_))) if is_paused(&root, tenant).await => {}
            Err(DaemonError::Refused(Refusal::AlreadyExists(_))) => {
                daemon.ask(Command::StartTenant { name: tenant.to_owned() }).await?;
            }
            outcome => outcome?,
        }
        daemon.ask(Command::AwaitReady).await
    };
    shown(live, &root, work).await
}

/// Does `work` and shows the tree meanwhile. The terminal may be gone: what can be shown does not decide what is done.
async fn shown<T>(live: &mut Live, root: &Addr<Root>, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    match live.during(work.as_mut(), || async { tree(root).await }).await {
        Ok(outcome) => outcome,
        Err(_gone) => work.await,
    }
}

async fn is_paused(root: &Addr<Root>, tenant: &str) -> bool {
    let status = tree(root).await.unwrap_or_default();
    status.tenants.iter().any(|chain| chain.name == tenant && chain.paused.is_some())
}

async fn tree(root: &Addr<Root>) -> Option<TreeStatus> {
    match root.send(Command::Status).await {
        Ok(Ok(Reply::Status(status))) => Some(*status),
        _ => None,
    }
}

/// A cluster keeps the Kubernetes it was made with, whatever is given since.
async fn without_k3s(daemon: &Daemon, tenant: &str) -> String {
    let status = tree(&daemon.root).await.unwrap_or_default();
    let is_older = status
        .tenants
        .iter()
        .any(|chain| chain.name == tenant && stack::distribution_of(chain) == Distribution::Kubernetes);
    if !is_older {
        return String::new();
    }
    format!("\n{tenant} was made without k3s and stays so; `berth cluster create NAME` makes one with it.\n")
}

/// Root's components run as another account, which may not be able to reach a home directory. Then the state lies where it
/// can, and `.berth` points there.
fn reachable(layout: Layout) -> Result<Layout, DaemonError> {
    let Some(account) = preflight::account(None).map_err(PreflightError::from)? else { return Ok(layout) };
    match preflight::check_reachable(layout.state(), &account) {
        Err(PreflightError::Unreachable(_)) => {}
        _ => return Ok(layout),
    }
    let digest = hex::encode(Sha256::digest(layout.state().as_os_str().as_encoded_bytes()));
    let elsewhere = PathBuf::from(REACHABLE).join(format!("berth-dev-{}", &digest[..8]));
    link(layout.state(), &elsewhere)
        .map_err(|source| DaemonError::Link { path: elsewhere.clone(), source })?;
    say(&format!(
        "{} cannot reach this directory: the state is in {}, and {} points there\n",
        account.name,
        elsewhere.display(),
        layout.state().display()
    ));
    Ok(Layout::new(elsewhere, Some(layout.run().to_owned())))
}

fn link(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    match symlink(to, from) {
        Err(error)
            if error.kind() == io::ErrorKind::AlreadyExists
                && fs::read_link(from).is_ok_and(|at| at == to) =>
        {
            Ok(())
        }
        outcome => outcome,
    }
}

/// What to try, with real paths and ports.
fn hints(layout: &Layout, daemon: &Daemon, tenant: &str) -> String {
    let berth = std::env::current_exe().map_or("berth".to_owned(), |path| path.display().to_string());
    let kubeconfig = layout.cluster(tenant).join("kubeconfig");
    let kcp = layout.kcp().join("admin.kubeconfig");
    let front = daemon.front.map_or_else(String::new, |front| front.to_string());
    format!(
        "
everything is ready; to try, in another terminal:

  {berth} status
  kubectl --kubeconfig {kubeconfig} get ns
  {berth} node add {tenant} worker-1
  {berth} kcp handover
  {berth} logs {tenant} kine -f
  curl --cacert {shared}/apiserver.crt https://{front}/readyz
  kubectl --kubeconfig {kcp} --context system:admin get ns

Ctrl-C stops everything.
",
        kubeconfig = kubeconfig.display(),
        kcp = kcp.display(),
        shared = layout.kcp_shared().display(),
    )
}

fn say(text: &str) {
    // A terminal that is gone is no reason to stop.
    let _ = io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush());
}
