//! Ports leased to tenants: an API server cannot bind port 0, and its clients keep its address across restarts.
//!
//! One file holds every lease, so a port stays with its cluster for the cluster's life. All calls block on that file.

use crate::files::{self, FileError};
use crate::one_line::one_line;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

#[derive(Debug, thiserror::Error)]
pub enum PortError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "{path} is not a list of port leases ({reason}): restore it, or remove it once every cluster is stopped"
    )]
    Torn { path: PathBuf, reason: String },
    #[error(
        "no port left for {cluster}: all of {first}-{last} are leased ({leased}) or taken by other programs; \
         delete a cluster or free a port"
    )]
    Exhausted { cluster: String, first: u16, last: u16, leased: usize },
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Leases {
    leases: BTreeMap<String, u16>,
}

impl Leases {
    /// The leases in a file that is called `path`.
    pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Self, PortError> {
        serde_json::from_slice(bytes)
            .map_err(|e| PortError::Torn { path: path.to_owned(), reason: one_line(e) })
    }

    pub(super) fn written(&self, path: &Path) -> Result<Vec<u8>, PortError> {
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|e| PortError::Torn { path: path.to_owned(), reason: e.to_string() })?;
        text.push(b'\n');
        Ok(text)
    }
}

/// The lease file of one state directory. Share one per daemon: it serialises its callers.
#[derive(Debug)]
pub struct Ports {
    path: PathBuf,
    range: RangeInclusive<u16>,
    turn: Mutex<()>,
}

impl Ports {
    pub fn with_range(path: PathBuf, range: RangeInclusive<u16>) -> Self {
        Self { path, range, turn: Mutex::new(()) }
    }

    /// The port of `cluster`: the one it has, else the next that nobody has. Durable before it returns. Blocking.
    pub fn lease(&self, cluster: &str) -> Result<u16, PortError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = self.read()?;
        if let Some(port) = file.leases.get(cluster) {
            return Ok(*port);
        }
        let port =
            choose(self.start(), &self.range, &file.leases, is_free).ok_or_else(|| PortError::Exhausted {
                cluster: cluster.to_owned(),
                first: *self.range.start(),
                last: *self.range.end(),
                leased: file.leases.len(),
            })?;
        file.leases.insert(cluster.to_owned(), port);
        self.write(&file)?;
        Ok(port)
    }

    /// Gives the port of a deleted cluster back. Idempotent. Blocking.
    pub fn release(&self, cluster: &str) -> Result<(), PortError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = self.read()?;
        if file.leases.remove(cluster).is_some() {
            self.write(&file)?;
        }
        Ok(())
    }

    /// The same for one state directory always, spread over the range for many.
    fn start(&self) -> u16 {
        let digest = Sha256::digest(self.path.as_os_str().as_encoded_bytes());
        let width = u64::from(self.range.end().saturating_sub(*self.range.start())) + 1;
        let offset = u64::from_be_bytes(digest[..8].try_into().unwrap_or_default()) % width;
        self.range.start() + u16::try_from(offset).unwrap_or_default()
    }

    fn read(&self) -> Result<Leases, PortError> {
        match files::read_optional(&self.path)? {
            None => Ok(Leases::default()),
            Some(bytes) => Leases::parse(&bytes, &self.path),
        }
    }

    fn write(&self, leases: &Leases) -> Result<(), PortError> {
        Ok(files::write_atomic(&self.path, &leases.written(&self.path)?, None)?)
    }
}

/// Starts at a place of its own, so that two daemons with one range do not hand out the same ports: a port is bound seconds
/// after it was leased.
fn choose(
    start: u16,
    range: &RangeInclusive<u16>,
    leases: &BTreeMap<String, u16>,
    free: impl Fn(u16) -> bool,
) -> Option<u16> {
    let mut from_start =
        range.clone().filter(|port| *port >= start).chain(range.clone().filter(|port| *port < start));
    from_start.find(|port| !leases.values().any(|leased| leased == port) && free(*port))
}

/// Whether `port` can be bound on loopback now. Later someone may still take it: the API server's start tells then.
pub(super) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leases(ports: &[u16]) -> BTreeMap<String, u16> {
        ports.iter().map(|port| (format!("c{port}"), *port)).collect()
    }

    #[test]
    fn the_next_port_that_is_neither_leased_nor_taken_is_chosen() {
        assert_eq!(choose(10, &(10..=13), &leases(&[10, 12]), |port| port != 11), Some(13));
        assert_eq!(choose(12, &(10..=13), &leases(&[12, 13]), |_| true), Some(10));
        assert_eq!(choose(11, &(10..=11), &leases(&[10]), |port| port != 11), None);
    }

    #[test]
    fn a_lease_outlives_the_daemon_and_a_taken_port_and_ends_with_its_release() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ports.json");
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let ports = |path: &Path| Ports::with_range(path.to_owned(), port..=port);
        let error = ports(&path).lease("a").unwrap_err().to_string();
        assert!(error.contains("no port left for a") && error.contains(&port.to_string()), "{error}");

        drop(taken);
        assert_eq!(ports(&path).lease("a").unwrap(), port);
        let served = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert_eq!(ports(&path).lease("a").unwrap(), port);
        assert!(matches!(ports(&path).lease("b"), Err(PortError::Exhausted { leased: 1, .. })));
        drop(served);
        ports(&path).release("a").unwrap();
        ports(&path).release("a").unwrap();
        assert_eq!(ports(&path).lease("b").unwrap(), port);
    }

    #[test]
    fn a_torn_lease_file_is_refused_by_name_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ports.json");
        files::write_atomic(&path, b"{\"leases\":{\"a\":16", None).unwrap();
        let error = Ports::with_range(path.clone(), 1..=2).lease("b").unwrap_err().to_string();
        assert!(error.contains("ports.json") && error.contains("restore it"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"{\"leases\":{\"a\":16");
    }
}
