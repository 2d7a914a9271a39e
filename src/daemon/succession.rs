//! One daemon after another, while everything runs: what this one inherits, and how it makes way.
//!
//! The processes need no handing over: the successor adopts them. The front's listening socket does. It travels as standard
//! input through the `exec` of an upgrade, as inetd hands sockets over, and through systemd's descriptor store from a daemon
//! that ended to the one that is started next. Clients that connect in between wait in its queue.

use super::DaemonError;
use crate::front::Front;
use rustix::net::SocketType;
use rustix::net::sockopt::{socket_acceptconn, socket_type};
use rustix::stdio::dup2_stdin;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// What the descriptor is called in systemd's store.
const STORED: &str = "front";

/// The listening socket an earlier daemon left for `wanted`. One for another address is closed: the setting has changed.
pub(super) fn inherited(wanted: SocketAddr) -> Option<TcpListener> {
    let is_wanted =
        |address: SocketAddr| address == wanted || (wanted.port() == 0 && address.ip() == wanted.ip());
    let mut found = None;
    for listener in from_stdin().into_iter().chain(from_systemd()) {
        let Ok(address) = listener.local_addr() else { continue };
        if found.is_none() && is_wanted(address) {
            found = Some(listener);
        } else {
            tracing::warn!("the front listens on {wanted} now: clients of {address} are refused from now on");
        }
    }
    found
}

fn from_stdin() -> Option<TcpListener> {
    let stdin = io::stdin();
    if !is_listener(&stdin) {
        return None;
    }
    let listener = stdin.as_fd().try_clone_to_owned().ok()?;
    // Else it would stay open, and the port taken, after the front is closed.
    let null = crate::files::trusted::open("/dev/null").ok()?;
    dup2_stdin(&null).ok()?;
    Some(listener.into())
}

fn is_listener(fd: impl AsFd) -> bool {
    socket_acceptconn(&fd).unwrap_or(false) && socket_type(&fd).is_ok_and(|kind| kind == SocketType::STREAM)
}

fn from_systemd() -> Vec<TcpListener> {
    let mut given = listenfd::ListenFd::from_env();
    (0..given.len()).filter_map(|index| given.take_tcp_listener(index).ok().flatten()).collect()
}

/// Leaves a handle on the front's socket with systemd, for the daemon it starts after this one. Without systemd, nothing.
pub(super) fn deposit(front: &Front) {
    let Ok(Some(listener)) = front.listener() else { return };
    let name = || sd_notify::NotifyState::FdName(STORED);
    // One for another address would be kept beside it, or instead of it, and listen for nobody.
    let kept = sd_notify::notify(&[sd_notify::NotifyState::FdStoreRemove, name()]).and_then(|()| {
        sd_notify::notify_with_fds(&[sd_notify::NotifyState::FdStore, name()], &[listener.as_fd()])
    });
    match kept {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, "systemd does not keep the front's socket");
        }
        _ => {}
    }
}

/// The program of this process, also where its file was replaced or removed.
const MYSELF: &str = "/proc/self/exe";

/// Becomes `program`, with this daemon's arguments, environment and pid, and its front's socket; or itself once more, where
/// that cannot be had any longer. Returns only when both failed.
pub(super) fn exec(program: &Path, listener: Option<TcpListener>) -> DaemonError {
    let socket = listener.as_ref().and_then(|listener| listener.try_clone().ok());
    let error = become_one(program, socket);
    tracing::error!(%error, "starting anew as the old program");
    become_one(Path::new(MYSELF), listener)
}

fn become_one(program: &Path, listener: Option<TcpListener>) -> DaemonError {
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_else(|| program.into());
    let mut successor = Command::new(program);
    successor.arg0(name).args(arguments);
    if let Some(listener) = listener {
        successor.stdin(OwnedFd::from(listener));
    }
    let source = successor.exec();
    DaemonError::Exec { program: program.to_owned(), source }
}
