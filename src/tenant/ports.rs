//! Ports leased to tenants: an API server cannot bind port 0, and its clients keep its address across restarts.
//!
//! One file holds every lease, so ports stay with their cluster for the cluster's life. A lease is a block of adjacent
//! ports: one for a kube-apiserver, several for a k3s. All calls block on that file.

use crate::files::{self, FileError};
use crate::one_line::one_line;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::{Range, RangeInclusive};
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
        "no port left for {cluster}: it needs {count} in a row, and all of {first}-{last} are leased ({leased}) or taken \
         by other programs; delete a cluster or free a port"
    )]
    Exhausted { cluster: String, count: u16, first: u16, last: u16, leased: usize },
}

/// Adjacent ports of one cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Block {
    /// As every lease was written while there were single ports only.
    One(u16),
    Many {
        first: u16,
        count: u16,
    },
}

impl Block {
    fn new(first: u16, count: u16) -> Self {
        if count == 1 { Self::One(first) } else { Self::Many { first, count } }
    }

    fn first(self) -> u16 {
        match self {
            Self::One(first) | Self::Many { first, .. } => first,
        }
    }

    /// Wider than a port, so that a block at the very end has an end.
    fn ports(self) -> Range<u32> {
        let count = match self {
            Self::One(_) => 1,
            Self::Many { count, .. } => count,
        };
        u32::from(self.first())..u32::from(self.first()) + u32::from(count)
    }

    fn is_sound(self) -> bool {
        !self.ports().is_empty() && self.ports().end <= u32::from(u16::MAX) + 1
    }

    fn overlaps(self, other: Self) -> bool {
        let (one, other) = (self.ports(), other.ports());
        one.start < other.end && other.start < one.end
    }
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Leases {
    leases: BTreeMap<String, Block>,
}

impl Leases {
    /// The leases in a file that is called `path`.
    pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Self, PortError> {
        let torn = |reason: String| PortError::Torn { path: path.to_owned(), reason };
        let file: Self = serde_json::from_slice(bytes).map_err(|e| torn(one_line(e)))?;
        match file.leases.iter().find(|(_, block)| !block.is_sound()) {
            Some((cluster, _)) => {
                Err(torn(one_line(format!("the ports of {cluster} end past the last one"))))
            }
            None => Ok(file),
        }
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

    /// The first of `count` adjacent ports of `cluster`: those it has, else the next that nobody has. A lease that is too
    /// small is given up for another. Durable before it returns. Blocking.
    pub fn lease(&self, cluster: &str, count: u16) -> Result<u16, PortError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = self.read()?;
        if let Some(block) = file.leases.get(cluster).filter(|block| block.ports().len() >= count.into()) {
            return Ok(block.first());
        }
        let taken: Vec<Block> = file.leases.values().copied().collect();
        let block = choose(self.start(), &self.range, count, &taken, is_free).ok_or_else(|| {
            PortError::Exhausted {
                cluster: cluster.to_owned(),
                count,
                first: *self.range.start(),
                last: *self.range.end(),
                leased: taken.iter().map(|block| block.ports().len()).sum(),
            }
        })?;
        file.leases.insert(cluster.to_owned(), block);
        self.write(&file)?;
        Ok(block.first())
    }

    /// Gives the ports of a deleted cluster back. Idempotent. Blocking.
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
    count: u16,
    leased: &[Block],
    free: impl Fn(u16) -> bool,
) -> Option<Block> {
    let from_start =
        range.clone().filter(|port| *port >= start).chain(range.clone().filter(|port| *port < start));
    from_start.map(|first| Block::new(first, count)).find(|block| {
        block.ports().end <= u32::from(*range.end()) + 1
            && !leased.iter().any(|other| other.overlaps(*block))
            && block.ports().all(|port| u16::try_from(port).is_ok_and(&free))
    })
}

/// Whether `port` can be bound on loopback now. Later someone may still take it: the API server's start tells then.
fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// The first of `ports` that another program holds, as an operator should read it.
pub(super) fn taken(ports: impl IntoIterator<Item = (u16, &'static str)>) -> Option<String> {
    let (port, purpose) = ports.into_iter().find(|(port, _)| !is_free(*port))?;
    let named = if purpose.is_empty() { String::new() } else { format!(" (for {purpose})") };
    Some(format!("its port {port}{named} is in use by another program: `ss -lptn sport = :{port}` names it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn leased(ports: &[u16]) -> Vec<Block> {
        ports.iter().map(|port| Block::One(*port)).collect()
    }

    #[test]
    fn the_next_port_that_is_neither_leased_nor_taken_is_chosen() {
        let one = |start, range, leases: &[u16], free: fn(u16) -> bool| {
            choose(start, &range, 1, &leased(leases), free).map(Block::first)
        };
        assert_eq!(one(10, 10..=13, &[10, 12], |port| port != 11), Some(13));
        assert_eq!(one(12, 10..=13, &[12, 13], |_| true), Some(10));
        assert_eq!(one(11, 10..=11, &[10], |port| port != 11), None);
    }

    #[test]
    fn a_block_needs_all_its_ports_free_and_inside_the_range() {
        let block = |start, range, leases: &[Block], free: fn(u16) -> bool| {
            choose(start, &range, 4, leases, free).map(Block::first)
        };
        assert_eq!(block(10, 10..=20, &leased(&[12]), |_| true), Some(13));
        assert_eq!(block(10, 10..=20, &[], |port| port != 13), Some(14));
        assert_eq!(block(10, 10..=20, &[Block::Many { first: 12, count: 4 }], |_| true), Some(16));
        assert_eq!(block(18, 10..=20, &[], |_| true), Some(10), "it does not run over the end");
        assert_eq!(block(10, 10..=12, &[], |_| true), None);
        assert_eq!(block(65530, 65530..=65535, &[Block::One(65531)], |_| true), Some(65532));
    }

    proptest! {
        // Each step syncs a file: a few histories, each of many steps.
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn leases_never_share_a_port_stay_in_the_range_and_stay_what_they_were(
            wishes in proptest::collection::vec((0_u8..12, prop_oneof![Just(1_u16), Just(4)], any::<bool>()), 1..40),
        ) {
            let dir = tempfile::tempdir().unwrap();
            // What else is bound on this host may exhaust it sooner; that is a lease refused, not one shared.
            let (path, range) = (dir.path().join("ports.json"), 47_000..=47_023);
            let mut held: BTreeMap<String, Block> = BTreeMap::new();
            for (cluster, count, release) in wishes {
                let name = format!("c{cluster}");
                let ports = Ports::with_range(path.clone(), range.clone());
                if release {
                    ports.release(&name).unwrap();
                    held.remove(&name);
                } else if let Ok(first) = ports.lease(&name, count) {
                    match held.get(&name) {
                        Some(block) if block.ports().len() >= count.into() => prop_assert_eq!(block.first(), first),
                        _ => drop(held.insert(name, Block::new(first, count))),
                    }
                }
                for (one, block) in &held {
                    let ports = block.ports();
                    prop_assert!(ports.start >= 47_000 && ports.end <= 47_024);
                    prop_assert!(held.iter().all(|(other, b)| other == one || !b.overlaps(*block)));
                }
            }
        }
    }

    #[test]
    fn a_lease_file_of_single_ports_is_read_kept_and_joined_by_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ports.json");
        files::write_atomic(&path, b"{\"leases\":{\"old\":21100}}", None).unwrap();
        // Below the ephemeral range: there, what other tests connect with may hold any of them.
        let range = 21_100..=21_899;
        let ports = Ports::with_range(path.clone(), range.clone());
        assert_eq!(ports.lease("old", 1).unwrap(), 21_100);
        let first = ports.lease("new", 4).unwrap();
        let text: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let wanted = serde_json::json!({"leases": {"old": 21_100, "new": {"first": first, "count": 4}}});
        assert_eq!(text, wanted);
        assert_eq!(Ports::with_range(path, range).lease("new", 4).unwrap(), first);
    }

    #[test]
    fn the_taken_port_of_a_block_is_named_with_its_purpose() {
        let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = holder.local_addr().unwrap().port();
        let text = taken([(port, "its scheduler")]).unwrap();
        assert!(text.contains(&format!("its port {port} (for its scheduler) is in use")), "{text}");
        drop(holder);
        assert_eq!(taken([(port, "its scheduler")]), None);
    }

    #[test]
    fn a_lease_outlives_the_daemon_and_a_taken_port_and_ends_with_its_release() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ports.json");
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        let ports = |path: &Path| Ports::with_range(path.to_owned(), port..=port);
        let error = ports(&path).lease("a", 1).unwrap_err().to_string();
        assert!(error.contains("no port left for a") && error.contains(&port.to_string()), "{error}");

        drop(taken);
        assert_eq!(ports(&path).lease("a", 1).unwrap(), port);
        let served = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert_eq!(ports(&path).lease("a", 1).unwrap(), port);
        assert!(matches!(ports(&path).lease("b", 1), Err(PortError::Exhausted { leased: 1, .. })));
        drop(served);
        ports(&path).release("a").unwrap();
        ports(&path).release("a").unwrap();
        assert_eq!(ports(&path).lease("b", 1).unwrap(), port);
    }

    #[test]
    fn a_torn_lease_file_is_refused_by_name_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ports.json");
        files::write_atomic(&path, b"{\"leases\":{\"a\":16", None).unwrap();
        let error = Ports::with_range(path.clone(), 1..=2).lease("b", 1).unwrap_err().to_string();
        assert!(error.contains("ports.json") && error.contains("restore it"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"{\"leases\":{\"a\":16");
        let past_the_end = br#"{"leases":{"a":{"first":65534,"count":4}}}"#;
        files::write_atomic(&path, past_the_end, None).unwrap();
        let error = Ports::with_range(path, 1..=2).lease("a", 4).unwrap_err().to_string();
        assert!(error.contains("the ports of a end past"), "{error}");
    }
}
