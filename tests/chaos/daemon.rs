//! The stand-in daemon: everything of a real one but the components, in the order `berth::daemon` brings it up.

use super::estate::StandIns;
use actix::prelude::*;
use berth::control::{ControlServer, DaemonDesk, EventHub, rendezvous};
use berth::discover::SockDiag;
use berth::front::{Descriptors, Front, FrontConfig};
use berth::kcp::HandoverFile;
use berth::layout::Layout;
use berth::preflight;
use berth::process::lock::StateLock;
use berth::process::{ProcessHost, orphans};
use berth_actors::child::actor::Outside;
use berth_actors::host::Journal;
use berth_actors::message::Command;
use berth_actors::root::{Kcp, Root, WhenDown, World};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

pub const ROLE: &str = "daemon";
const DRAIN_LIMIT: Duration = Duration::from_millis(300);

pub fn main(words: &[String]) -> ExitCode {
    let [state, run, front, files @ ..] = words else { panic!("daemon STATE RUN FRONT [OPEN-FILES]") };
    if let [files] = files {
        let limit = files.parse().ok();
        setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).unwrap();
    }
    let layout = Layout::new(PathBuf::from(state), Some(PathBuf::from(run)));
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
    match actix::System::new().block_on(live(layout, front.parse().unwrap())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            tracing::error!(%reason, "the stand-in daemon gives up");
            ExitCode::FAILURE
        }
    }
}

async fn live(layout: Layout, listen: SocketAddr) -> Result<(), String> {
    preflight::create_dirs(&layout).map_err(text)?;
    let _lock = StateLock::acquire(&layout).map_err(text)?;
    rendezvous::publish(&layout).map_err(text)?;
    let journal = HandoverFile::new(&layout);
    journal.read().await?;
    orphans::adopt().map_err(text)?;
    let (caps, _) = FrontConfig::default().within(Descriptors::of_this_process());
    let front = Front::bind(listen, caps).map_err(text)?;
    let processes = ProcessHost::new(&layout).map_err(text)?;
    let (events, received) = broadcast::channel(1024);
    let outside = Outside { processes: Arc::new(processes), listeners: Arc::new(SockDiag), events };
    let stand_ins = Arc::new(StandIns::new(&layout));
    let kcp = Kcp {
        api: Arc::clone(&stand_ins) as _,
        journal: Arc::new(journal),
        dataplane: Arc::new(front.clone()),
        drain_limit: DRAIN_LIMIT,
        canary: None,
    };
    let world = World { outside, estate: Arc::clone(&stand_ins) as _, kcp: Some(kcp), starts_at_once: 2 };
    let root = Root::new(world).start();
    let hub = EventHub::new();
    actix_rt::spawn(hub.clone().record_from(received));
    let files = Arc::new(stand_ins.files());
    // Nobody upgrades a stand-in: whoever asks is told that it is gone.
    let (desk, _) = DaemonDesk::open();
    let tree = root.clone().recipient();
    let server = ControlServer::bind(&layout.control_socket(), desk, tree, files, hub).map_err(text)?;
    let control = CancellationToken::new();
    let served = actix_rt::spawn(server.serve(control.clone()));
    let ask = |command: Command| async { root.send(command).await.map_err(text)?.map_err(text) };
    let mut asked = signal(SignalKind::interrupt()).map_err(text)?;
    ask(Command::Up).await?;
    tokio::select! {
        _ = asked.recv() => {}
        _ = root.send(WhenDown) => {}
    }
    let stopped = ask(Command::Down).await;
    front.close();
    control.cancel();
    let _ = served.await;
    stopped.map(drop)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
