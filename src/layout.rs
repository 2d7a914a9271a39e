//! Where everything lies: the state directory, and the short run directory for sockets.
//!
//! ```text
//! <state>/lock                      one daemon per state directory
//! <state>/assets/sha256/<digest>/   component binaries
//! <state>/ledger/                   one record per process
//! <state>/kcp/shared/               the five files every slot needs
//! <state>/kcp/store/{data,log}/     the kcp store's postgres
//! <state>/kcp/slot-a/{root,log}/    one kine and one kcp
//! <state>/clusters/<name>/          everything of one tenant
//! <run>/control.sock                the control API
//! <run>/<chain>/                    sockets of one chain
//! ```
//! A socket path may have 107 bytes (sun_path), so sockets live in a run directory with a short name.

use crate::names;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// `/.s.PGSQL.5432` is the longest socket name in use; sun_path takes 107 bytes without its NUL.
const LONGEST_SOCKET: usize = 107 - "/.s.PGSQL.5432".len();

/// Paths of one daemon. Cheap to clone; creates nothing.
#[derive(Debug, Clone)]
pub struct Layout {
    state: PathBuf,
    run: PathBuf,
}

/// The run directory would give a socket path the kernel refuses.
#[derive(Debug, thiserror::Error)]
#[error(
    "the run directory {run} is too long for a socket of {chain} ({length} bytes, {LONGEST_SOCKET} at most): \
     choose a shorter one with --run-dir"
)]
pub struct RunDirTooLong {
    run: PathBuf,
    chain: String,
    length: usize,
}

impl Layout {
    /// `state` must be absolute. Without `run`, a short directory is derived from it: `/run/berth-<hash>` for root,
    /// `$XDG_RUNTIME_DIR/berth-<hash>` or `/tmp/berth-<uid>-<hash>` for everyone else.
    pub fn new(state: PathBuf, run: Option<PathBuf>) -> Self {
        let run = run.unwrap_or_else(|| default_run(&state));
        Self { state, run }
    }

    pub fn state(&self) -> &Path {
        &self.state
    }
    pub fn run(&self) -> &Path {
        &self.run
    }
    pub fn lock(&self) -> PathBuf {
        self.state.join("lock")
    }
    pub fn control_socket(&self) -> PathBuf {
        self.run.join("control.sock")
    }
    pub fn assets(&self) -> PathBuf {
        self.state.join("assets")
    }
    pub fn ledger(&self) -> PathBuf {
        self.state.join("ledger")
    }
    pub fn kcp(&self) -> PathBuf {
        self.state.join("kcp")
    }
    pub fn kcp_shared(&self) -> PathBuf {
        self.kcp().join("shared")
    }
    /// Data of a kcp chain: `kcp-store`, `slot-a` or `slot-b`.
    pub fn kcp_chain(&self, chain: &str) -> PathBuf {
        self.kcp().join(chain.strip_prefix("kcp-").unwrap_or(chain))
    }
    pub fn clusters(&self) -> PathBuf {
        self.state.join("clusters")
    }
    pub fn cluster(&self, name: &str) -> PathBuf {
        self.clusters().join(name)
    }

    /// Where a chain's components write their output, `COMPONENT.log` each.
    pub fn logs(&self, chain: &str) -> PathBuf {
        if names::is_kcp_chain(chain) { self.kcp_chain(chain) } else { self.cluster(chain) }.join("log")
    }

    /// The socket directory of one chain, checked against the kernel's limit.
    pub fn sockets(&self, chain: &str) -> Result<PathBuf, RunDirTooLong> {
        let path = self.run.join(chain);
        let length = path.as_os_str().len();
        if length > LONGEST_SOCKET {
            return Err(RunDirTooLong { run: self.run.clone(), chain: chain.to_owned(), length });
        }
        Ok(path)
    }
}

fn default_run(state: &Path) -> PathBuf {
    let digest = hex::encode(Sha256::digest(state.as_os_str().as_encoded_bytes()));
    let short = &digest[..8];
    if rustix::process::geteuid().is_root() {
        return PathBuf::from(format!("/run/berth-{short}"));
    }
    match std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_dir()) {
        Some(dir) => dir.join(format!("berth-{short}")),
        None => PathBuf::from(format!("/tmp/berth-{}-{short}", rustix::process::geteuid().as_raw())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_directory_too_long_for_a_socket_is_refused_by_name() {
        let layout = Layout::new("/s".into(), Some(PathBuf::from(format!("/{}", "r".repeat(90)))));
        assert!(layout.sockets("d").is_ok());
        let error = layout.sockets("demo").unwrap_err().to_string();
        assert!(error.contains("--run-dir") && error.contains("demo"), "{error}");
    }
}
