//! How soon a new listening socket is seen, and what one look costs beside ten thousand other sockets.
//!
//! The listener is this program again, told by its argument: it waits at a gate (a pipe with a name), listens, and writes down
//! when it did.

use berth::discover::SockDiag;
use berth::process::identity_of;
use berth_actors::host::Listeners;
use rustix::fs::{CWD, Mode, mkfifoat};
use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const ARGUMENT: &str = "--listen-at-gate";
const LISTENERS: usize = 40;
const LOOKS: usize = 200;
const SOCKETS: usize = 10_000;

pub(crate) fn as_listener() -> Option<PathBuf> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == ARGUMENT).then(|| arguments.next().map(Into::into))?
}

/// One clock for both processes.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

/// Never returns: it listens until it is killed.
pub(crate) fn listen_when_told(gate: &Path) {
    drop(fs::File::open(gate));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    fs::write(gate.with_extension("at"), now().as_nanos().to_string()).unwrap();
    loop {
        drop(listener.accept());
    }
}

/// From listen(2) to the answer; the search is under way before.
pub(crate) async fn latency() {
    let dir = tempfile::tempdir().unwrap();
    let mut waits = Vec::new();
    for number in 0..LISTENERS {
        let gate = dir.path().join(number.to_string());
        mkfifoat(CWD, &gate, Mode::RUSR | Mode::WUSR).unwrap();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .arg(ARGUMENT)
            .arg(&gate)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let identity = identity_of(child.id()).unwrap();
        let open = tokio::task::spawn_blocking({
            let gate = gate.clone();
            move || drop(fs::File::options().write(true).open(gate))
        });
        SockDiag.listening(&identity).await.unwrap();
        let seen = now();
        open.await.unwrap();
        let at = until_written(&gate.with_extension("at")).await;
        waits.push(seen.saturating_sub(at));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    waits.sort_unstable();
    let shown = |wait: Duration| format!("{:.1} ms", wait.as_secs_f64() * 1000.0);
    println!(
        "{:<44}{:>12}{:>12}{:>9}  5 ms",
        "a new listening socket is seen, p50 / p95",
        "",
        shown(waits[LISTENERS / 2]),
        shown(waits[LISTENERS * 95 / 100])
    );
}

async fn until_written(path: &Path) -> Duration {
    loop {
        match fs::read_to_string(path).ok().and_then(|text| text.parse().ok()) {
            Some(nanos) => return Duration::from_nanos(nanos),
            None => tokio::task::yield_now().await,
        }
    }
}

/// One look at a process of few files, with and without ten thousand sockets elsewhere on the host.
pub(crate) async fn probe_beside_many_sockets() {
    let dir = tempfile::tempdir().unwrap();
    let gate = dir.path().join("gate");
    mkfifoat(CWD, &gate, Mode::RUSR | Mode::WUSR).unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap()).arg(ARGUMENT).arg(&gate).spawn().unwrap();
    let identity = identity_of(child.id()).unwrap();
    tokio::task::spawn_blocking(move || drop(fs::File::options().write(true).open(gate))).await.unwrap();
    SockDiag.listening(&identity).await.unwrap();
    let alone = look(&identity).await;
    let sockets: Vec<UdpSocket> = (0..SOCKETS).map_while(|_| UdpSocket::bind("127.0.0.1:0").ok()).collect();
    let listeners: Vec<TcpListener> =
        (0..SOCKETS / 10).map_while(|_| TcpListener::bind("127.0.0.1:0").ok()).collect();
    let beside = look(&identity).await;
    println!(
        "{:<44}{:>9.3} ms{:>9.3} ms{:>9.2}  1 ms a look",
        format!("one look beside {} sockets, {} listening", sockets.len() + listeners.len(), listeners.len()),
        alone.as_secs_f64() * 1000.0,
        beside.as_secs_f64() * 1000.0,
        beside.as_secs_f64() / alone.as_secs_f64()
    );
    child.kill().unwrap();
    child.wait().unwrap();
}

async fn look(identity: &berth_actors::identity::Identity) -> Duration {
    let from = Instant::now();
    for _ in 0..LOOKS {
        SockDiag.listening(identity).await.unwrap();
    }
    from.elapsed() / u32::try_from(LOOKS).unwrap()
}
