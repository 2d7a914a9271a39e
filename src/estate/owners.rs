//! Whom a cluster's processes and files belong to: a uid of its own where the daemon is root.
//!
//! The estate asks when it gets to know a cluster, before its chain is built. A cluster from before there were leases moves to a
//! uid of its own when nothing of it runs; one that runs goes on under the account it has.

use super::Inner;
use crate::fault;
use crate::files::{self, FileError};
use crate::process;
use crate::tenant::Accounts;
use crate::tenant::uids::{Lease, UidError};
use berth_actors::spec::User;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub(super) enum OwnerError {
    #[error(transparent)]
    Uid(#[from] UidError),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("look for processes in {path}: {source}")]
    Processes { path: PathBuf, source: io::Error },
    #[error("{path} is being moved to uid {uid}, and processes work in it ({pids:?}): end them")]
    Occupied { path: PathBuf, uid: u32, pids: Vec<u32> },
}

/// What a cluster gets.
#[derive(Debug, PartialEq, Eq)]
enum Plan {
    /// The account of all components, because it does, or because nothing else is wanted.
    Common {
        waits: bool,
    },
    Own(Lease),
    /// A uid for files there are not yet.
    Lease,
    /// The uid its directory has, if nobody else leased it.
    Keep(u32),
    /// All its files change hands first.
    Move,
}

/// `lease`: what it has. `directory`: whose its directory is, if there is one; `is_free`: that uid can be leased; `lives`: processes
/// work in it.
fn plan(lease: Option<Lease>, directory: Option<u32>, are_leased: bool, is_free: bool, lives: bool) -> Plan {
    match (lease, directory) {
        (Some(lease), _) if !lease.moving => Plan::Own(lease),
        (Some(_), _) => Plan::Move,
        (None, _) if !are_leased => Plan::Common { waits: false },
        (None, None) => Plan::Lease,
        // The lease file was lost; the directory still says.
        (None, Some(uid)) if is_free => Plan::Keep(uid),
        (None, Some(_)) if lives => Plan::Common { waits: true },
        (None, Some(_)) => Plan::Move,
    }
}

/// A cluster's accounts, and whether it would have a uid of its own but for what runs of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owned {
    pub(super) accounts: Accounts,
    pub(super) waits: bool,
}

impl Owned {
    /// `None`: it shares an account, or has the daemon's.
    pub(super) fn own_uid(&self) -> Option<u32> {
        self.accounts.maker.and(self.accounts.owner).map(|own| own.uid)
    }
}

impl Inner {
    /// Durable before it returns. Blocking; the longer the more files have to change hands.
    pub(super) fn owner_of(&self, cluster: &str) -> Result<Owned, OwnerError> {
        let common = |waits| Owned { accounts: self.accounts.clone(), waits };
        let own = |lease: Lease| Owned { accounts: self.accounts.with_own(lease.user()), waits: false };
        let Some(common_user) = self.accounts.owner else { return Ok(common(false)) };
        let lease = self.uids.of(cluster)?;
        let data = self.layout.cluster(cluster);
        let directory = owner_of(&data)?;
        let needs_a_look = directory.is_some() && lease.is_none_or(|lease| lease.moving);
        let inside = if needs_a_look {
            process::inside(&data).map_err(|source| OwnerError::Processes { path: data.clone(), source })?
        } else {
            Vec::new()
        };
        let is_free = directory.map_or(Ok(false), |uid| self.uids.is_free(uid))?;
        match plan(lease, directory, self.uids.are_leased(), is_free, !inside.is_empty()) {
            Plan::Common { waits } => Ok(common(waits)),
            Plan::Own(lease) => Ok(own(lease)),
            Plan::Lease => Ok(own(self.uids.lease(cluster, None, false)?)),
            Plan::Keep(uid) => Ok(own(self.uids.lease(cluster, Some(uid), false)?)),
            Plan::Move => self.relocate(cluster, &data, &inside, common_user),
        }
    }

    /// The lease says that it is under way before the first file changes hands, and that it is done after the last.
    fn relocate(
        &self,
        cluster: &str,
        data: &Path,
        inside: &[u32],
        common: User,
    ) -> Result<Owned, OwnerError> {
        let lease = self.uids.lease(cluster, None, true)?;
        fault::point("tenant-moving");
        if !inside.is_empty() {
            return Err(OwnerError::Occupied {
                path: data.to_owned(),
                uid: lease.uid,
                pids: inside.to_vec(),
            });
        }
        let from = |uid| uid == common.uid || self.uids.contains(uid);
        let (mut changed, mut left) = (0, 0);
        // Either may be gone: /run is cleaned by others.
        for top in std::iter::once(data.to_owned()).chain(self.layout.sockets(cluster)) {
            if owner_of(&top)?.is_some() {
                let given = files::give_tree(&top, from, lease.user())?;
                (changed, left) = (changed + given.changed, left + given.left);
            }
        }
        fault::point("tenant-moved");
        self.uids.settle(cluster)?;
        tracing::info!(cluster, uid = lease.uid, files = changed, "it has a uid of its own now");
        if left > 0 {
            tracing::warn!(
                cluster,
                "{left} files in {} belong to somebody else, and stay so",
                data.display()
            );
        }
        Ok(Owned { accounts: self.accounts.with_own(lease.user()), waits: false })
    }
}

/// `None`: there is nothing.
fn owner_of(path: &Path) -> Result<Option<u32>, FileError> {
    match path.symlink_metadata() {
        Ok(meta) => Ok(Some(meta.uid())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(FileError { action: "look at", path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Lease = Lease { uid: 7, moving: false };

    fn planned(lease: Option<Lease>, directory: Option<u32>, lives: bool) -> Plan {
        plan(lease, directory, true, directory == Some(7), lives)
    }

    #[test]
    fn a_new_cluster_gets_a_uid_and_keeps_it_for_life() {
        assert_eq!(planned(None, None, false), Plan::Lease);
        for (directory, lives) in [(None, false), (Some(7), false), (Some(7), true), (Some(65_534), true)] {
            assert_eq!(planned(Some(LEASE), directory, lives), Plan::Own(LEASE));
        }
    }

    #[test]
    fn a_cluster_from_before_moves_when_nothing_of_it_runs_and_waits_until_then() {
        assert_eq!(planned(None, Some(65_534), false), Plan::Move);
        assert_eq!(planned(None, Some(65_534), true), Plan::Common { waits: true });
    }

    #[test]
    fn a_move_that_was_cut_short_is_gone_on_with_wherever_it_stood() {
        let moving = Some(Lease { moving: true, ..LEASE });
        for directory in [Some(65_534), Some(7), None] {
            assert_eq!(planned(moving, directory, false), Plan::Move);
        }
    }

    #[test]
    fn a_directory_says_whose_it_is_when_the_lease_is_lost() {
        assert_eq!(planned(None, Some(7), true), Plan::Keep(7));
    }

    #[test]
    fn without_a_range_only_what_was_leased_before_stays_apart() {
        let without = |lease, directory| plan(lease, directory, false, false, false);
        assert_eq!(without(None, None), Plan::Common { waits: false });
        assert_eq!(without(None, Some(65_534)), Plan::Common { waits: false });
        assert_eq!(without(Some(LEASE), Some(7)), Plan::Own(LEASE));
    }
}
