//! Uids leased to the clusters of a root daemon, one each, so that the kernel keeps their processes and files apart.
//!
//! One file holds every lease: a cluster keeps its uid for its life. The next lease goes on behind the last one, so that
//! a uid that was given back is the last to be leased again. All calls block on that file.

use crate::files::{self, FileError};
use crate::one_line::one_line;
use berth_actors::spec::User;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

#[derive(Debug, thiserror::Error)]
pub enum UidError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "{path} is not a list of uid leases ({reason}): restore it, or remove it while no cluster runs: each then keeps the \
         uid its directory belongs to"
    )]
    Torn { path: PathBuf, reason: String },
    #[error(
        "no uid left for {cluster}: all of {first}-{last} are leased ({leased}) or accounts of this host; delete a cluster, \
         or give more with `uids` under [tenants]"
    )]
    Exhausted { cluster: String, first: u32, last: u32, leased: usize },
}

/// What one cluster has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    pub uid: u32,
    /// Its files are being given to that uid, and may be half of them: nothing of it may start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub moving: bool,
}

impl Lease {
    /// The group has the same number, and no other member.
    pub fn user(self) -> User {
        User { uid: self.uid, gid: self.uid }
    }
}

#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Leases {
    leases: BTreeMap<String, Lease>,
    /// Where the next search begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<u32>,
}

impl Leases {
    /// The leases in a file that is called `path`. Root's uid, and one for two clusters, are no leases.
    pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Self, UidError> {
        let torn = |reason: String| UidError::Torn { path: path.to_owned(), reason };
        let file: Self = serde_json::from_slice(bytes).map_err(|error| torn(one_line(error)))?;
        let mut seen = BTreeMap::new();
        for (cluster, lease) in &file.leases {
            if lease.uid == 0 {
                return Err(torn(one_line(format!("{cluster} would be root"))));
            }
            if let Some(other) = seen.insert(lease.uid, cluster) {
                return Err(torn(one_line(format!("{other} and {cluster} have the same"))));
            }
        }
        Ok(file)
    }

    pub(super) fn written(&self, path: &Path) -> Result<Vec<u8>, UidError> {
        let mut text = serde_json::to_vec_pretty(self)
            .map_err(|error| UidError::Torn { path: path.to_owned(), reason: error.to_string() })?;
        text.push(b'\n');
        Ok(text)
    }

    fn holder(&self, uid: u32) -> Option<&str> {
        self.leases.iter().find(|(_, lease)| lease.uid == uid).map(|(cluster, _)| cluster.as_str())
    }
}

/// The lease file of one state directory. Share one per daemon: it serialises its callers.
#[derive(Debug)]
pub struct Uids {
    path: PathBuf,
    range: Range<u32>,
    turn: Mutex<()>,
}

impl Uids {
    /// An empty range leases nothing; what was leased before stays.
    pub fn with_range(path: PathBuf, range: Range<u32>) -> Self {
        Self { path, range, turn: Mutex::new(()) }
    }

    /// Whether clusters without a lease get one.
    pub fn are_leased(&self) -> bool {
        !self.range.is_empty()
    }

    /// Whether it may be a cluster's.
    pub fn contains(&self, uid: u32) -> bool {
        self.range.contains(&uid)
    }

    /// Whether it may be, and is none's. Blocking.
    pub fn is_free(&self, uid: u32) -> Result<bool, UidError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(self.contains(uid) && self.read()?.holder(uid).is_none())
    }

    pub fn of(&self, cluster: &str) -> Result<Option<Lease>, UidError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(self.read()?.leases.get(cluster).copied())
    }

    /// The lease of `cluster`: the one it has, else `wanted` if nobody has that, else the next that is nobody's. Durable before
    /// it returns. Blocking.
    pub fn lease(&self, cluster: &str, wanted: Option<u32>, moving: bool) -> Result<Lease, UidError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = self.read()?;
        if let Some(lease) = file.leases.get(cluster) {
            return Ok(*lease);
        }
        let is_free = |uid: u32| file.holder(uid).is_none();
        let uid = wanted.filter(|uid| self.contains(*uid) && is_free(*uid)).or_else(|| {
            let taken = accounts();
            choose(file.next.unwrap_or_else(|| self.start()), &self.range, |uid| {
                is_free(uid) && !taken.contains(&uid)
            })
        });
        let uid = uid.ok_or_else(|| UidError::Exhausted {
            cluster: cluster.to_owned(),
            first: self.range.start,
            last: self.range.end.saturating_sub(1),
            leased: file.leases.len(),
        })?;
        let lease = Lease { uid, moving };
        file.leases.insert(cluster.to_owned(), lease);
        file.next = Some(uid.saturating_add(1));
        self.write(&file)?;
        Ok(lease)
    }

    /// All files of `cluster` are its uid's. Idempotent. Blocking.
    pub fn settle(&self, cluster: &str) -> Result<(), UidError> {
        self.change(|file| match file.leases.get_mut(cluster) {
            Some(lease) => std::mem::take(&mut lease.moving),
            None => false,
        })
    }

    /// Gives the uid of a deleted cluster back. Idempotent. Blocking.
    pub fn release(&self, cluster: &str) -> Result<(), UidError> {
        self.change(|file| file.leases.remove(cluster).is_some())
    }

    /// Gives back the uids of all clusters that do not `exist`: a daemon that died between a lease and the cluster's record left
    /// one that nobody else would ever return. Blocking.
    pub fn release_all_but(&self, exist: impl Fn(&str) -> bool) -> Result<(), UidError> {
        self.change(|file| {
            let before = file.leases.len();
            file.leases.retain(|cluster, _| exist(cluster));
            file.leases.len() < before
        })
    }

    /// Writes only what `change` says it changed.
    fn change(&self, change: impl FnOnce(&mut Leases) -> bool) -> Result<(), UidError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut file = self.read()?;
        if change(&mut file) { self.write(&file) } else { Ok(()) }
    }

    /// The same for one state directory always, spread over the range for many: two daemons with one range shall not meet.
    fn start(&self) -> u32 {
        let digest = Sha256::digest(self.path.as_os_str().as_encoded_bytes());
        let width = u64::from(self.range.end.saturating_sub(self.range.start)).max(1);
        let offset = u64::from_be_bytes(digest[..8].try_into().unwrap_or_default()) % width;
        self.range.start + u32::try_from(offset).unwrap_or_default()
    }

    fn read(&self) -> Result<Leases, UidError> {
        match files::read_optional(&self.path)? {
            None => Ok(Leases::default()),
            Some(bytes) => Leases::parse(&bytes, &self.path),
        }
    }

    fn write(&self, leases: &Leases) -> Result<(), UidError> {
        Ok(files::write_atomic(&self.path, &leases.written(&self.path)?, None)?)
    }
}

/// The first free one from `start` on, around the end of the range.
fn choose(start: u32, range: &Range<u32>, free: impl Fn(u32) -> bool) -> Option<u32> {
    let start = if range.contains(&start) { start } else { range.start };
    (start..range.end).chain(range.start..start).find(|uid| free(*uid))
}

/// Uids and gids that are somebody's on this host.
fn accounts() -> Vec<u32> {
    let ids = |path: &str| {
        let text = crate::files::trusted::text(path).unwrap_or_default();
        text.lines().filter_map(|line| line.split(':').nth(2)?.parse().ok()).collect::<Vec<u32>>()
    };
    [ids("/etc/passwd"), ids("/etc/group")].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bench(range: Range<u32>) -> (tempfile::TempDir, Uids) {
        let dir = tempfile::tempdir().unwrap();
        let uids = Uids::with_range(dir.path().join("uids.json"), range);
        (dir, uids)
    }

    #[test]
    fn the_search_goes_on_where_it_ended_and_around() {
        assert_eq!(choose(12, &(10..14), |uid| uid != 12), Some(13));
        assert_eq!(choose(13, &(10..14), |uid| uid != 13), Some(10));
        assert_eq!(choose(99, &(10..14), |_| true), Some(10), "outside of a range that was changed");
        assert_eq!(choose(10, &(10..14), |_| false), None);
        assert_eq!(choose(10, &(10..10), |_| true), None);
    }

    #[test]
    fn a_uid_that_was_given_back_is_the_last_to_be_leased_again() {
        let (_dir, uids) = bench(3_000_000..3_000_003);
        let first = uids.lease("a", None, false).unwrap().uid;
        uids.release("a").unwrap();
        uids.release("a").unwrap();
        let [second, third] = ["b", "c"].map(|cluster| uids.lease(cluster, None, false).unwrap().uid);
        assert!(first != second && first != third && second != third);
        assert_eq!(uids.lease("d", None, false).unwrap().uid, first);
        let error = uids.lease("e", None, false).unwrap_err().to_string();
        assert!(error.contains("no uid left for e") && error.contains("3000000-3000002"), "{error}");
    }

    #[test]
    fn a_lease_outlives_the_daemon_the_range_and_a_move_that_was_cut_short() {
        let (dir, uids) = bench(3_000_000..3_001_000);
        let lease = uids.lease("a", None, true).unwrap();
        assert!(lease.moving);
        let path = dir.path().join("uids.json");
        let next = Uids::with_range(path, 0..0);
        assert_eq!(next.of("a").unwrap(), Some(lease));
        next.settle("a").unwrap();
        assert_eq!(next.of("a").unwrap(), Some(Lease { moving: false, ..lease }));
        assert_eq!(next.lease("a", None, false).unwrap().uid, lease.uid);
        assert!(
            !next.are_leased() && matches!(next.lease("b", None, false), Err(UidError::Exhausted { .. }))
        );
    }

    #[test]
    fn the_uid_a_directory_has_stays_its_own_unless_another_cluster_has_it() {
        let (_dir, uids) = bench(3_000_000..3_001_000);
        assert_eq!(uids.lease("a", Some(3_000_007), false).unwrap().uid, 3_000_007);
        assert_ne!(uids.lease("b", Some(3_000_007), false).unwrap().uid, 3_000_007);
        assert_ne!(uids.lease("c", Some(65_534), false).unwrap().uid, 65_534, "nor one outside of the range");
    }

    #[test]
    fn a_lease_without_a_cluster_is_given_back() {
        let (_dir, uids) = bench(3_000_000..3_001_000);
        let kept = uids.lease("kept", None, false).unwrap();
        uids.lease("lost", None, false).unwrap();
        uids.release_all_but(|cluster| cluster == "kept").unwrap();
        assert_eq!((uids.of("kept").unwrap(), uids.of("lost").unwrap()), (Some(kept), None));
    }

    #[test]
    fn accounts_of_this_host_are_nobodys_lease() {
        assert!(accounts().contains(&0) && accounts().len() > 2);
    }

    #[test]
    fn a_torn_or_impossible_lease_file_is_refused_by_name_and_left_alone() {
        let (dir, uids) = bench(3_000_000..3_001_000);
        let path = dir.path().join("uids.json");
        for (text, what) in [
            ("{\"leases\":{\"a\":{\"uid\":3", "EOF"),
            (r#"{"leases":{"a":{"uid":0}}}"#, "a would be root"),
            (r#"{"leases":{"a":{"uid":7},"b":{"uid":7}}}"#, "a and b have the same"),
        ] {
            files::write_atomic(&path, text.as_bytes(), None).unwrap();
            let error = uids.lease("c", None, false).unwrap_err().to_string();
            assert!(error.contains("uids.json") && error.contains(what), "{error}");
            assert_eq!(std::fs::read(&path).unwrap(), text.as_bytes());
        }
    }

    proptest! {
        // Each step syncs a file: a few histories, each of many steps.
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn no_two_clusters_ever_share_a_uid_and_each_keeps_its_own(
            wishes in proptest::collection::vec((0_u8..8, any::<bool>()), 1..40),
        ) {
            let (_dir, uids) = bench(3_000_000..3_000_006);
            let mut held: BTreeMap<String, u32> = BTreeMap::new();
            for (cluster, release) in wishes {
                let name = format!("c{cluster}");
                if release {
                    uids.release(&name).unwrap();
                    held.remove(&name);
                } else if let Ok(lease) = uids.lease(&name, None, false) {
                    prop_assert_eq!(*held.entry(name.clone()).or_insert(lease.uid), lease.uid);
                    prop_assert!(held.iter().all(|(other, uid)| *other == name || *uid != lease.uid));
                } else {
                    prop_assert_eq!(held.len(), 6);
                }
            }
        }
    }
}
