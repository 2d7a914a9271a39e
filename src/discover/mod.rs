//! Which TCP port a process listens on, and who holds a port that should be free (K2).
//!
//! The tree asks through [`SockDiag`] after a spawn; whoever reports a bind failure asks [`holder_of`]. Reads the kernel's
//! socket tables; connects to nothing.
//!
//! ```text
//! fixed   whether a port that was chosen beforehand is the process's own
//! diag    listening sockets through NETLINK_SOCK_DIAG;  proc_net  the same from /proc/net/tcp{,6}
//! choice  the one address among a process's sockets
//! ```

mod choice;
mod diag;
mod fixed;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod proc_net;

pub use fixed::occupant;

use crate::off_thread::off_thread;
use crate::process::is_alive;
use async_trait::async_trait;
use berth_actors::host::Listeners;
use berth_actors::identity::Identity;
use choice::Choice;
use procfs::process::{FDTarget, Process};
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The kernel reports no event for listen(2), so there is a pause from look to look: this many times what the last look took.
/// A search takes a fifth of a CPU at most, and looks less often where looks are slow: beside many sockets, or when there
/// is no CPU to be had.
const PAUSE: u32 = 4;
/// A look beside few sockets takes 0.1 ms, a component 50 ms and more: sooner than this, looks would only take its CPU away.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
/// However slow a look is, a component is not left waiting for the next one.
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

fn pause(took: Duration) -> Duration {
    took.saturating_mul(PAUSE).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

/// A socket in state LISTEN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listener {
    address: SocketAddr,
    inode: u64,
}

/// Finds listening sockets by asking the kernel for all of them, and the process for its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct SockDiag;

#[async_trait]
impl Listeners for SockDiag {
    async fn listening(&self, identity: &Identity) -> Result<SocketAddr, String> {
        loop {
            let (wanted, from) = (identity.clone(), Instant::now());
            match off_thread(move || look(&wanted)).await? {
                Choice::One(address) => return Ok(address),
                Choice::NoneYet => tokio::time::sleep(pause(from.elapsed())).await,
                Choice::Many(ports) => return Err(too_many(identity, &ports)),
            }
        }
    }

    async fn listening_at(&self, identity: &Identity, address: SocketAddr) -> Result<SocketAddr, String> {
        loop {
            let (wanted, from) = (identity.clone(), Instant::now());
            if off_thread(move || fixed::is_own(&wanted, address)).await? {
                return Ok(address);
            }
            tokio::time::sleep(pause(from.elapsed())).await;
        }
    }
}

fn too_many(identity: &Identity, ports: &[u16]) -> String {
    let named: Vec<String> = ports.iter().map(ToString::to_string).collect();
    format!("{identity} listens on {} TCP ports where one was expected: {}", ports.len(), named.join(", "))
}

fn ended_early(identity: &Identity) -> String {
    format!("{identity} ended before it listened on a TCP port")
}

/// Blocking.
fn look(identity: &Identity) -> Result<Choice, String> {
    let gone = || ended_early(identity);
    let is_same = || is_alive(identity);
    if !is_same() {
        return Err(gone());
    }
    let sockets = match sockets_of(identity.pid) {
        Ok(sockets) => sockets,
        Err(_) if !is_same() => return Err(gone()),
        Err(error) => return Err(format!("cannot list the open files of {identity}: {error}")),
    };
    if sockets.is_empty() {
        return Ok(Choice::NoneYet);
    }
    let listeners = listeners().map_err(|error| format!("cannot list listening sockets: {error}"))?;
    // The pid may have been reused while its files were read.
    if !is_same() {
        return Err(gone());
    }
    let own = listeners.iter().filter(|listener| sockets.contains(&listener.inode));
    Ok(choice::among(own.map(|listener| listener.address)))
}

/// All listening TCP sockets of both address families. Blocking.
fn listeners() -> io::Result<Vec<Listener>> {
    diag::listeners().or_else(|error| {
        tracing::debug!(%error, "no sock_diag; reading /proc/net/tcp instead");
        proc_net::listeners()
    })
}

/// Inodes of the sockets a process has open.
fn sockets_of(pid: u32) -> io::Result<HashSet<u64>> {
    let pid = i32::try_from(pid).map_err(io::Error::other)?;
    let files = Process::new(pid).and_then(|process| process.fd()).map_err(io::Error::other)?;
    Ok(files
        .filter_map(|file| match file.ok()?.target {
            FDTarget::Socket(inode) => Some(inode),
            _ => None,
        })
        .collect())
}

/// A process that listens on an address somebody else wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    pub pid: u32,
    pub name: String,
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (pid {})", self.name, self.pid)
    }
}

/// Who listens where a bind to `address` would fail. `None` when nobody does, or when it is another user's process that
/// this daemon may not look into. Blocking: reads every process's open files.
pub fn holder_of(address: SocketAddr) -> Option<Holder> {
    let wanted: HashSet<u64> = listeners()
        .ok()?
        .into_iter()
        .filter(|listener| choice::collide(listener.address, address))
        .map(|listener| listener.inode)
        .collect();
    if wanted.is_empty() {
        return None;
    }
    procfs::process::all_processes().ok()?.filter_map(Result::ok).find_map(|process| {
        let pid = u32::try_from(process.pid()).ok()?;
        let holds = sockets_of(pid).ok()?.iter().any(|inode| wanted.contains(inode));
        holds.then(|| Some(Holder { pid, name: process.stat().ok()?.comm }))?
    })
}

#[cfg(test)]
mod tests;
