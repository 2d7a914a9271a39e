//! The life of `k3s server`, top to bottom: token, files, ports, API server, controllers; and the end of all with one.

use super::args::Options;
use super::children::{self, Programs};
use super::files::Files;
use super::{logrus, token};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

const PROBE: Duration = Duration::from_millis(200);
const ANSWER: Duration = Duration::from_secs(2);

/// What ends the last line of the log.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServerError {
    #[error("{0}")]
    Refused(String),
    #[error("starting kubernetes: preparing server: {0}")]
    Io(#[from] io::Error),
    #[error("{what} exited: {status}")]
    Ended { what: &'static str, status: String },
}

/// Until it is told to end, or one of its parts has ended.
pub(super) async fn serve(options: &Options) -> Result<(), ServerError> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut parts = Parts::default();
    let end = tokio::select! {
        end = live(options, &mut parts) => end,
        _ = term.recv() => Ok(()),
        _ = int.recv() => Ok(()),
    };
    parts.end().await;
    end
}

/// The real programs inside.
#[derive(Debug, Default)]
struct Parts {
    apiserver: Option<Child>,
    controllers: Option<Child>,
}

impl Parts {
    /// The store holds whole transactions only, so there is nothing to wait for but the burial.
    async fn end(self) {
        for mut part in [self.controllers, self.apiserver].into_iter().flatten() {
            // One that cannot be reaped is the death signal's to end.
            let _ = part.kill().await;
        }
    }
}

async fn live(options: &Options, parts: &mut Parts) -> Result<(), ServerError> {
    let programs = Programs::from_env().map_err(ServerError::Refused)?;
    let server = options.data_dir.join("server");
    let secret = token::read(&options.token_file, &server).map_err(ServerError::Refused)?;
    let files = Files::write(options, &secret)?;
    let _others = other_ports(options).map_err(ServerError::Refused)?;

    let args = children::apiserver_args(options, &files);
    let apiserver =
        children::spawn(&programs.apiserver, "kube-apiserver", &args).map_err(ServerError::Refused)?;
    let apiserver = parts.apiserver.insert(apiserver);
    tokio::select! {
        ready = answers(options.port, &files) => ready?,
        ended = ended(apiserver, "apiserver") => return Err(ended),
    }
    logrus::info("Kube API server is now running");
    let args = children::controllers_args(options, &files);
    let controllers = children::spawn(&programs.controllers, "kube-controller-manager", &args)
        .map_err(ServerError::Refused)?;
    let controllers = parts.controllers.insert(controllers);
    logrus::info("k3s is up and running");
    tokio::select! {
        ended = ended(apiserver, "apiserver") => Err(ended),
        ended = ended(controllers, "controller-manager") => Err(ended),
    }
}

/// The ports of what is not here: k3s holds several, and a clash ends it.
fn other_ports(options: &Options) -> Result<Vec<TcpListener>, String> {
    let scheduler = options.scheduler_args.iter().rev().find_map(|arg| arg.strip_prefix("secure-port="));
    let scheduler = match scheduler {
        Some(port) => port.parse().map_err(|_| format!("scheduler exited: invalid secure-port {port}"))?,
        None => 10259_u16,
    };
    let listen = |port: u16| {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        TcpListener::bind(address).map_err(|error| format!("listen tcp {address}: bind: {error}"))
    };
    [options.port + 1, scheduler].into_iter().map(listen).collect()
}

async fn ended(child: &mut Child, what: &'static str) -> ServerError {
    let status = child.wait().await.map_or_else(|error| error.to_string(), |status| status.to_string());
    ServerError::Ended { what, status }
}

/// Resolves once the API server calls itself ready: its controllers would give up on one that is not.
async fn answers(port: u16, files: &Files) -> Result<(), ServerError> {
    let pem = |name: &str| files.tls.read(name);
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(pem("server-ca.crt")?.as_bytes()).map_err(io::Error::other)?;
    roots.add(ca).map_err(io::Error::other)?;
    let chain =
        CertificateDer::from_pem_slice(pem("client-admin.crt")?.as_bytes()).map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_slice(pem("client-admin.key")?.as_bytes()).map_err(io::Error::other)?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![chain], key)
        .map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::new(config));
    while !tokio::time::timeout(ANSWER, is_ready(&connector, port))
        .await
        .is_ok_and(|ready| ready.unwrap_or(false))
    {
        tokio::time::sleep(PROBE).await;
    }
    Ok(())
}

async fn is_ready(connector: &TlsConnector, port: u16) -> io::Result<bool> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    let name = ServerName::from(std::net::IpAddr::from(Ipv4Addr::LOCALHOST));
    let mut stream = connector.connect(name, stream).await?;
    stream.write_all(b"GET /readyz HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    Ok(head.ends_with(b" 200"))
}
