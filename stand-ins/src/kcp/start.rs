//! The life of `kcp start`, top to bottom: files, socket, backend, serving, ready, and the end.

use super::args::Options;
use super::backend::{self, Backend};
use super::bootstrap::{self, Times};
use super::certificate::Pair;
use super::health::Progress;
use super::klog;
use super::knobs::{Hang, Knobs};
use super::material::{Found, Tokens};
use super::serve;
use super::shutdown::{self, Requests};
use super::state::{Ending, Shard, State};
use super::upstream::Upstream;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::watch;
use tokio::time::Instant;

/// A backend that gives up after this long waited for its store, as kcp would have.
const STORE_PATIENCE: Duration = Duration::from_secs(15);
/// As large as the kernel's own limit usually is: clients come long before the first handshake.
const BACKLOG: u32 = 4096;
const NO_ROUTE: &str = "Unable to find suitable network address.error='no default routes found in \
                        \"/proc/net/route\" or \"/proc/net/ipv6_route\"'. Try to set the AdvertiseAddress directly or \
                        provide a valid BindAddress to fix this.";
/// Told to end before it served.
const ABORTED: u8 = 255;
/// A Go program that crashed.
const CRASHED: u8 = 2;

/// The text behind kcp's last `Error: `.
#[derive(Debug, thiserror::Error)]
pub(super) enum StartError {
    #[error("{0}")]
    Refused(String),
    #[error("cannot {action}: {source}")]
    Io { action: String, source: io::Error },
    #[error("create api extensions: context deadline exceeded")]
    NoStore,
    #[error("the kube-apiserver behind the stand-in ended ({status}): see {log}")]
    BackendEnded { status: String, log: String },
}

fn io_error(action: impl Into<String>) -> impl FnOnce(io::Error) -> StartError {
    let action = action.into();
    move |source| StartError::Io { action, source }
}

/// Returns the exit code, or what ends the last line of the log.
pub(super) async fn start(options: &Options) -> Result<u8, StartError> {
    let began = Instant::now();
    let knobs = Knobs::from_env().map_err(StartError::Refused)?;
    let found = check(options, &knobs)?;
    let mut requests = Requests::listen(knobs.ignore_sigterm).map_err(io_error("listen for signals"))?;
    let listener = bind(SocketAddr::new(options.bind_address, options.secure_port))?;
    let address = listener.local_addr().map_err(io_error("read the bound address"))?;
    let _second = if knobs.second_listener { Some(bind((Ipv4Addr::LOCALHOST, 0).into())?) } else { None };
    let base_url = options.base_url.clone().unwrap_or_else(|| format!("https://{address}"));
    let (tokens, serving) = write(options, &found, &base_url)?;

    let hung = match knobs.hang {
        Hang::Never => false,
        Hang::Always => true,
        Hang::Once => backend::first_hang(&options.root).map_err(io_error("remember a hang"))?,
    };
    let mut backend = spawn_backend(options, &knobs)?;
    let state = state(options, &knobs, tokens, base_url, &backend, hung)?;
    let ahead = ahead(&state, options, &mut backend, &mut requests, began).await;
    let end = if let Some(end) = ahead {
        end
    } else {
        let tls = serve::tls(&serving, options.http2).map_err(StartError::Refused)?;
        tokio::spawn(serve::serve(listener, tls, Arc::clone(&state)));
        klog::info("secure_serving.go:214", &format!("Serving securely on {address}"));
        let times = Times { began, ready_at: began + knobs.ready_after };
        tokio::select! {
            never = bootstrap::bring_up(&state, options, address, times) => match never {},
            status = backend.ended() => Err(backend_ended(status, &backend)),
            () = crash(&state, knobs.crash_after_ready) => Ok(CRASHED),
            code = served(&state, options, &mut requests) => Ok(code),
        }
    };
    backend.kill().await;
    end
}

/// Everything kcp looks at before it listens.
fn check(options: &Options, knobs: &Knobs) -> Result<Found, StartError> {
    let root = &options.root;
    let found = Found::read(root).map_err(io_error(format!("read the root directory {}", root.display())))?;
    found.check_keys(root).map_err(StartError::Refused)?;
    let misplaced = options.bind_free_port && options.secure_port != 0;
    if knobs.no_default_route || misplaced {
        found.write_service_account_key(root).map_err(not_written(root))?;
    }
    if knobs.no_default_route {
        return Err(StartError::Refused(NO_ROUTE.to_owned()));
    }
    if misplaced {
        found.write_serving_pair(root).map_err(not_written(root))?;
        let needed = "--secure-port=0 required if --experimental-bind-free-port is set";
        return Err(StartError::Refused(needed.to_owned()));
    }
    Ok(found)
}

/// One listening socket; what connects before [`serve::serve`] waits in its backlog. Needs the runtime.
fn bind(wanted: SocketAddr) -> Result<TcpListener, StartError> {
    let listen = || {
        let socket = if wanted.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        socket.bind(wanted)?;
        socket.listen(BACKLOG)
    };
    listen().map_err(|error| {
        let reason = match error.kind() {
            io::ErrorKind::AddrInUse => "address already in use".to_owned(),
            _ => error.to_string(),
        };
        StartError::Refused(format!(
            "failed to create listener: failed to listen on {wanted}: listen tcp {wanted}: bind: {reason}"
        ))
    })
}

/// The tokens are looked at first: a refused start has written nothing.
fn write(options: &Options, found: &Found, base_url: &str) -> Result<(Tokens, Pair), StartError> {
    let root = &options.root;
    let tokens = found.tokens(root).map_err(StartError::Refused)?;
    found.write_service_account_key(root).map_err(not_written(root))?;
    let serving = found.write_serving_pair(root).map_err(not_written(root))?;
    found.write_tokens(root, &tokens, base_url, &serving).map_err(not_written(root))?;
    Ok((tokens, serving))
}

fn not_written(root: &Path) -> impl FnOnce(io::Error) -> StartError + use<> {
    io_error(format!("write into {}", root.display()))
}

/// The end of a start that does not come to serving; `None` once the backend answers.
async fn ahead(
    state: &State,
    options: &Options,
    backend: &mut Backend,
    requests: &mut Requests,
    began: Instant,
) -> Option<Result<u8, StartError>> {
    tokio::select! {
        () = bootstrap::answering(&state.upstream) => None,
        status = backend.ended() => Some(Err(if began.elapsed() > STORE_PATIENCE {
            StartError::NoStore
        } else {
            backend_ended(status, backend)
        })),
        () = requests.next() => {
            tokio::time::sleep(options.shutdown_delay + shutdown::ABORTED_START).await;
            Some(Ok(ABORTED))
        }
    }
}

fn spawn_backend(options: &Options, knobs: &Knobs) -> Result<Backend, StartError> {
    let program = knobs.kube_apiserver.as_deref().ok_or_else(|| {
        StartError::Refused(
            "the stand-in needs KCP_STANDIN_KUBE_APISERVER, the path of a kube-apiserver".to_owned(),
        )
    })?;
    let etcd = options.etcd_servers.as_deref().ok_or_else(|| {
        StartError::Refused("the stand-in has no embedded etcd: --etcd-servers is required".to_owned())
    })?;
    Backend::spawn(program, options, etcd).map_err(io_error(format!("run {}", program.display())))
}

fn state(
    options: &Options,
    knobs: &Knobs,
    tokens: Tokens,
    base_url: String,
    backend: &Backend,
    hung: bool,
) -> Result<Arc<State>, StartError> {
    Ok(Arc::new(State {
        tokens,
        upstream: Upstream::new(&backend.pki, backend.address)
            .map_err(|error| StartError::Refused(error.to_string()))?,
        shard: Shard {
            external_url: options.external_url.clone().unwrap_or_else(|| base_url.clone()),
            virtual_workspace_url: options.virtual_workspace_url.clone().unwrap_or_else(|| base_url.clone()),
            base_url,
            since: crate::clock::now(),
        },
        goaway_chance: options.goaway_chance,
        lease_retry: knobs.lease_retry,
        half_close: knobs.half_close,
        silent_watches: knobs.silent_watches.clone(),
        hung: AtomicBool::new(hung),
        backend_log: backend.log.clone(),
        progress: watch::Sender::new(Progress::Serving),
        ending: watch::Sender::new(Ending::No),
    }))
}

fn backend_ended(status: String, backend: &Backend) -> StartError {
    StartError::BackendEnded { status, log: backend.log.display().to_string() }
}

/// Until it was told to end, and has ended.
async fn served(state: &State, options: &Options, requests: &mut Requests) -> u8 {
    requests.next().await;
    shutdown::wind_down(state, options.shutdown_delay, requests).await
}

async fn crash(state: &State, after_ready: Option<Duration>) {
    let Some(after) = after_ready else { return std::future::pending().await };
    // Fails only when the state is gone, and it is borrowed here.
    let _ = state.progress.subscribe().wait_for(|progress| *progress == Progress::Ready).await;
    tokio::time::sleep(after).await;
    klog::raw("panic: the stand-in was told to crash\n");
}
