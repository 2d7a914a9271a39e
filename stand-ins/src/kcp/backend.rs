//! The kube-apiserver behind the front: its private directory, its argv, its birth and its end.
//!
//! It cannot outlive the stand-in: see [`crate::tethered`].

use super::args::Options;
use super::certificate::{self, BackendPki};
use super::material;
use super::upstream::{GROUP_HEADER, USER_HEADER};
use crate::tethered;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::net::TcpSocket;
use tokio::process::Child;

/// Below the root; nothing in it outlives the next start but the mark of a hung one.
const DIRECTORY: &str = ".stand-in";
/// SIGKILL does not wait for anything; this is for a host that does.
const REAP_DEADLINE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Backend {
    child: Child,
    pub address: SocketAddr,
    pub pki: BackendPki,
    pub log: PathBuf,
    /// Bound, never listening: keeps the port from everyone but the child, which may share it.
    _port: TcpSocket,
}

impl Backend {
    /// Must be called on the main thread: the death signal follows the spawning thread, not the process.
    pub(super) fn spawn(program: &Path, options: &Options, etcd: &str) -> io::Result<Self> {
        let directory = private_directory(&options.root)?;
        let pki = BackendPki::generate(crate::clock::now()).map_err(io::Error::other)?;
        let service_account_key = crate::own_files::bytes(options.root.join(material::SERVICE_ACCOUNT_KEY))?;
        let public = certificate::public_half(&service_account_key).map_err(io::Error::other)?;
        for (name, text) in [
            ("sa.pub", &public),
            ("ca.crt", &pki.ca),
            ("kube-apiserver.crt", &pki.server.chain),
            ("kube-apiserver.key", &pki.server.key),
        ] {
            material::create(&directory.join(name), 0o600, text.as_bytes())?;
        }
        let port = TcpSocket::new_v4()?;
        port.set_reuseport(true)?;
        port.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let address = port.local_addr()?;
        let log = directory.join("kube-apiserver.log");
        let output = OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(&log)?;
        let child = tethered::command("kcp-stand-in", program)
            .args(argv(options, etcd, &directory, address.port()))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()?;
        Ok(Self { child, address, pki, log, _port: port })
    }

    /// Resolves when it has ended by itself. Cancel-safe.
    pub(super) async fn ended(&mut self) -> String {
        self.child
            .wait()
            .await
            .map_or_else(|error| error.to_string(), |status: ExitStatus| status.to_string())
    }

    /// The store holds whole transactions only, so there is nothing to wait for.
    pub(super) async fn kill(&mut self) {
        // A child that cannot be reaped within the deadline is the death signal's to end.
        let _ = tokio::time::timeout(REAP_DEADLINE, self.child.kill()).await;
    }
}

/// Creates it where missing. Blocking.
fn private_directory(root: &Path) -> io::Result<PathBuf> {
    let directory = root.join(DIRECTORY);
    DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    Ok(directory)
}

/// Whether this root has never hung before; remembers that it does now. Blocking.
pub(super) fn first_hang(root: &Path) -> io::Result<bool> {
    let mark = private_directory(root)?.join("hung-once");
    if fs::exists(&mark)? {
        return Ok(false);
    }
    material::create(&mark, 0o600, b"")?;
    Ok(true)
}

fn argv(options: &Options, etcd: &str, directory: &Path, port: u16) -> Vec<String> {
    let file = |name: &str| directory.join(name).display().to_string();
    let service_account_key = options.root.join(material::SERVICE_ACCOUNT_KEY).display().to_string();
    let mut argv = vec![
        format!("--etcd-servers={etcd}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        "--permit-port-sharing=true".to_owned(),
        // Without one it looks for a default route.
        "--advertise-address=127.0.0.1".to_owned(),
        // The default one complains every ten seconds about a loopback address.
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--tls-cert-file={}", file("kube-apiserver.crt")),
        format!("--tls-private-key-file={}", file("kube-apiserver.key")),
        // Nobody but the front gets in, and the front has authorized already.
        "--anonymous-auth=false".to_owned(),
        "--authorization-mode=AlwaysAllow".to_owned(),
        format!("--requestheader-client-ca-file={}", file("ca.crt")),
        format!("--requestheader-allowed-names={}", BackendPki::FRONT),
        format!("--requestheader-username-headers={USER_HEADER}"),
        format!("--requestheader-group-headers={GROUP_HEADER}"),
        "--requestheader-extra-headers-prefix=x-remote-extra-".to_owned(),
        // Both slots verify each other's ServiceAccount tokens by it.
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", file("sa.pub")),
        format!("--service-account-signing-key-file={service_account_key}"),
        "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
        "--profiling=false".to_owned(),
        // One client, the front: there is nobody to be fair to, and a second of the start is saved.
        "--enable-priority-and-fairness=false".to_owned(),
        "--http2-max-streams-per-connection=100000".to_owned(),
    ];
    argv.extend(options.etcd_prefix.iter().map(|prefix| format!("--etcd-prefix={prefix}")));
    argv.extend(options.audit.iter().cloned());
    argv
}
