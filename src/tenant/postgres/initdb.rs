//! Creates the database cluster, whole or not at all: beside its place first, then renamed.

use super::super::seat::Seat;
use super::super::{defaults, postgres::SUPERUSER};
use crate::fault;
use crate::files::{self, FileError};
use crate::process::tool::{self, Tool, ToolError};
use berth_actors::host::PrepareError;
use berth_actors::spec::User;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// Called only while `data` does not exist. `maker`: whom it is made as where the owner has no name; then it is made outside of
/// the chain's directory, which is closed to everybody else, and given to the owner before it is moved in. Others run as the
/// maker too. So what is made lies below a directory of root's that only the cluster's group may pass, and of that initdb alone is:
/// the kernel lets nobody of the same uid but another gid trace it either.
pub(super) async fn create(
    seat: &Seat,
    bin: &Path,
    data: &Path,
    maker: Option<User>,
) -> Result<(), PrepareError> {
    let made_as = maker.zip(seat.owner).map(|(maker, owner)| User { uid: maker.uid, gid: owner.gid });
    let gate = made_as.map(|user| (outside(&seat.data), user.gid));
    let aside = gate.as_ref().map_or_else(|| data.with_extension("new"), |(gate, _)| gate.join("pg"));
    let user = made_as.or(seat.owner);
    let (path, closed) = (aside.clone(), gate.clone());
    seat.blocking(move || {
        files::remove_tree(closed.as_ref().map_or(&path, |(gate, _)| gate))?;
        if let Some((gate, group)) = &closed {
            gate_for(gate, *group)?;
        }
        // Made here, with the right owner: the parent directory need not be the component's own.
        files::private_dir(&path, user)
    })
    .await?;
    let initdb = Tool {
        program: bin.join("initdb"),
        args: arguments(&aside),
        env: super::tool_environment(),
        dir: aside.clone(),
        user,
    };
    tool::run(initdb, defaults::INITDB_DEADLINE).await.map_err(|error| match error {
        ToolError::Start { .. } => seat.fatal(error),
        ToolError::TooLate { .. } | ToolError::Failed { .. } => seat.retry(error),
    })?;
    fault::point("initdb-done");
    let (data, owner) = (data.to_owned(), seat.owner);
    seat.blocking(move || {
        if let (Some(maker), Some(owner)) = (maker, owner) {
            files::give_tree(&aside, |uid| uid == maker.uid, owner)?;
            fault::point("initdb-given");
        }
        files::rename(&aside, &data)?;
        gate.map_or(Ok(()), |(gate, _)| files::remove_tree(&gate))
    })
    .await
}

/// A directory of the daemon's that `group` may pass through and not list, and nobody else may enter.
fn gate_for(path: &Path, group: u32) -> Result<(), FileError> {
    files::private_dir(path, None)?;
    let opened = || {
        chown(path, None, Some(group))?;
        std::fs::set_permissions(path, Permissions::from_mode(0o710))
    };
    opened().map_err(|source| FileError { action: "set the group of", path: path.to_owned(), source })
}

/// Where the database cluster of the chain in `seat` is made when that is not in its own directory: on the same file system.
pub(crate) fn outside(seat: &Path) -> PathBuf {
    let name = seat.file_name().unwrap_or_default().to_string_lossy();
    seat.with_file_name(format!(".{name}.initdb"))
}

/// One syncfs at the end instead of a sync for each of a thousand files.
fn arguments(dir: &Path) -> Vec<String> {
    let mut args =
        vec!["-D".to_owned(), dir.to_string_lossy().into_owned(), "-U".to_owned(), SUPERUSER.to_owned()];
    let rest = [
        "--encoding=UTF8",
        "--locale=C",
        "--auth-local=peer",
        "--auth-host=reject",
        "--sync-method=syncfs",
        "--no-instructions",
    ];
    args.extend(rest.map(str::to_owned));
    args
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Gid, Uid};

    /// A thread of that account, as any process of it is to the kernel.
    fn may_enter(dir: &Path, user: User) -> bool {
        let dir = dir.to_owned();
        let tried = std::thread::spawn(move || {
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(gid, gid, gid).unwrap();
            rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
            std::fs::read_dir(dir).is_ok()
        });
        tried.join().unwrap()
    }

    #[test]
    fn who_shares_the_makers_uid_but_not_the_clusters_group_gets_nowhere_near_what_is_made() {
        if !rustix::process::geteuid().is_root() {
            let what = "initdb for a cluster with a uid of its own: only root has those";
            return crate::testing::not_exercised(what);
        }
        let top = tempfile::tempdir().unwrap();
        std::fs::set_permissions(top.path(), Permissions::from_mode(0o711)).unwrap();
        let maker = User { uid: 65_534, gid: 65_534 };
        let made_as = User { gid: 2_100_000_007, ..maker };
        let gate = outside(&top.path().join("demo"));
        gate_for(&gate, made_as.gid).unwrap();
        let made = gate.join("pg");
        files::private_dir(&made, Some(made_as)).unwrap();
        assert!(may_enter(&made, made_as));
        assert!(!may_enter(&made, maker), "another component of the common account");
        assert!(!may_enter(&gate, made_as), "nor may initdb list what lies beside it");
    }
}
