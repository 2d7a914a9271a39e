//! `berth supervise FILE`: plain services under the same tree that runs control planes, in the foreground.
//!
//! ```text
//! spec      the file, read strictly, in an order that respects `after`
//! estate    one chain of one step per service;  service  that step;  readiness  how it says that it is ready
//! files     what the control API reads;  arrival  the one line that says when all of it is ready
//! ```
//! `main` calls [`supervise`]. It wires adapters to a group of chains and decides nothing.

mod arrival;
mod defaults;
mod estate;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod readiness;
mod service;
mod spec;

pub use spec::SpecError;

use crate::cli::{Place, Supervise};
use crate::control::{ControlServer, DaemonDesk, EventHub, rendezvous};
use crate::daemon::{self, DaemonError, systemd};
use crate::discover::SockDiag;
use crate::layout::Layout;
use crate::off_thread::off_thread;
use crate::preflight;
use crate::process::lock::StateLock;
use crate::process::{ComponentLimits, ProcessHost, orphans};
use actix::prelude::*;
use berth_actors::child::actor::Outside;
use berth_actors::group::actor::GroupActor;
use berth_actors::message::{Command, Refusal};
use berth_actors::root::WhenDown;
use estate::Estate;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// The whole life, top to bottom.
pub fn supervise(place: &Place, args: &Supervise) -> ExitCode {
    let (estate, layout) = match settings(place, args) {
        Ok(settings) => settings,
        Err(error) => return daemon::refuse(&error),
    };
    // What goes well is in `berth events`; a terminal with a thousand services has no room for it.
    daemon::log_to_stderr("warn");
    daemon::in_runtime(async move {
        let asked = daemon::stop_signal()?;
        let services = Services::start(estate, layout).await?;
        systemd::ready();
        tokio::select! {
            () = asked.cancelled() => {}
            () = services.down() => {}
            () = systemd::stay_alive() => {}
        }
        systemd::stopping();
        tokio::select! {
            stopped = services.stop() => stopped,
            () = systemd::stay_alive() => Ok(()),
        }
    })
}

/// What the file asks for, and where its state lies: beside it unless told otherwise.
fn settings(place: &Place, args: &Supervise) -> Result<(Estate, Layout), DaemonError> {
    let file = std::path::absolute(&args.file).map_err(DaemonError::CurrentDir)?;
    let overrides = place.overrides().map_err(DaemonError::CurrentDir)?;
    let state = overrides.state_dir.unwrap_or_else(|| Place::beside(&file));
    let layout = Layout::new(state, overrides.run_dir);
    Ok((estate::load(&file, logs_of(&layout))?, layout))
}

/// A running group. Dropping it stops nothing: call [`Services::stop`].
struct Services {
    group: Addr<GroupActor>,
    processes: ProcessHost,
    control: CancellationToken,
    served: actix_rt::task::JoinHandle<()>,
    _lock: StateLock,
}

impl Services {
    /// Takes the lock, and starts the tree, which adopts what an earlier daemon left and starts everything that
    /// waits for nothing.
    async fn start(estate: Estate, layout: Layout) -> Result<Self, DaemonError> {
        // Each survivor costs a descriptor.
        daemon::raise_descriptor_limit();
        let at = layout.clone();
        let (lock, processes) = off_thread(move || {
            preflight::check_place(&at)?;
            preflight::create(&[at.state(), at.run(), &logs_of(&at)])?;
            let lock = StateLock::acquire(&at)?;
            rendezvous::publish(&at)?;
            let processes = ProcessHost::limited(&at, estate.limits, ComponentLimits::default(), false)?;
            Ok::<_, DaemonError>((lock, processes))
        })
        .await?;
        orphans::adopt().map_err(DaemonError::Subreaper)?;
        let (events, received) = broadcast::channel(daemon::EVENT_LAG);
        let outside =
            Outside { processes: Arc::new(processes.clone()), listeners: Arc::new(SockDiag), events };
        let group = GroupActor::new(estate.members, outside).map_err(DaemonError::Refused)?.start();
        let hub = EventHub::new();
        actix_rt::spawn(hub.clone().record_from(received));
        let server = ControlServer::bind(
            &layout.control_socket(),
            desk(),
            group.clone().recipient(),
            Arc::new(estate.files),
            hub.clone(),
        )?;
        let control = CancellationToken::new();
        let served = actix_rt::spawn(server.serve(control.clone()));
        let services = Self { group, processes, control, served, _lock: lock };
        services.ask(Command::Up).await?;
        actix_rt::spawn(arrival::tell(services.group.clone(), hub));
        Ok(services)
    }

    /// One at a time, the last one first; within the sum of their times, whatever hangs.
    async fn stop(self) -> Result<(), DaemonError> {
        let stopped = self.ask(Command::Down).await.map_err(DaemonError::left);
        self.processes.tidy().await;
        self.control.cancel();
        if self.served.await.is_err() {
            tracing::warn!("the control API ended badly");
        }
        stopped
    }

    /// Resolves once somebody had everything stopped through the control API.
    async fn down(&self) {
        if let Err(error) = self.group.send(WhenDown).await {
            tracing::error!(%error, "the supervision tree is gone");
        }
    }

    async fn ask(&self, command: Command) -> Result<(), DaemonError> {
        self.group.send(command).await.map_err(DaemonError::Tree)?.map(|_| ()).map_err(DaemonError::Refused)
    }
}

fn logs_of(layout: &Layout) -> PathBuf {
    layout.state().join("log")
}

/// Nobody is succeeded in place here: a supervisor that was killed and started again adopts everything it ran.
fn desk() -> DaemonDesk {
    let (desk, mut upgrades) = DaemonDesk::open();
    actix_rt::spawn(async move {
        while let Some(wish) = upgrades.recv().await {
            let text = "berth supervise is not upgraded in place: kill it and start the new one, which adopts its services";
            // Whoever asked may have gone away.
            let _ = wish.answer.send(Err(Refusal::Conflict(text.to_owned())));
        }
    });
    desk
}
