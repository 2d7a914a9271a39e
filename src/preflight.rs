//! What must be true of the host before anything starts. The daemon asks once, early, and every refusal says what to do.
//!
//! [`check`] reads the host and changes nothing; [`create_dirs`] is the only writer. Judging and parsing are pure functions.

mod account;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod route;
mod uids;

pub use account::{Account, AccountError, account};
pub use uids::are_mapped;

use crate::config;
use crate::files::FileError;
use crate::layout::{Layout, RunDirTooLong};
use berth_actors::spec::User;
use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A tenant's empty PostgreSQL and its write-ahead log take about 100 MB; with less than this the first start fails midway.
const SPACE_REQUIRED: u64 = 200 << 20;
/// The components take 0.6 GB, and a Go build cache often lies on the same file system.
const SPACE_ADVISED: u64 = 2 << 30;
/// The longest name a tenant may have (N4).
const LONGEST_CHAIN: usize = 40;

#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    #[error(
        "the host has no default route, and kcp picks its address from it and refuses to start: add one; without a network, \
         `ip address add 192.0.2.1/32 dev lo && ip route add default dev lo` is enough"
    )]
    NoDefaultRoute,
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error(
        "{path} belongs to uid {owner}, not to uid {ours}: run berth as its owner, or choose another with {flag}"
    )]
    Foreign { path: PathBuf, owner: u32, ours: u32, flag: &'static str },
    #[error("{path} is not a directory: choose another with {flag}")]
    NotADirectory { path: PathBuf, flag: &'static str },
    #[error("{path} is not writable for uid {ours} ({reason}): choose another with {flag}")]
    NotWritable { path: PathBuf, ours: u32, reason: io::Error, flag: &'static str },
    /// `dev` may answer by choosing another state directory.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
    #[error(
        "{path} lies on a file system mounted noexec, and components are executed from there: choose another with --state"
    )]
    NoExec { path: PathBuf },
    #[error("{path} has {} MB of free space and needs {} at least", .free >> 20, SPACE_REQUIRED >> 20)]
    NoSpace { path: PathBuf, free: u64 },
    #[error(
        "uids {first}-{last} do not exist in this container's user namespace, and each cluster gets one of them: set first_uid and \
         uids under [tenants] to some that /proc/self/uid_map has, or `uids = 0` to have all clusters share one account"
    )]
    UidsNotMapped { first: u32, last: u32 },
    #[error(transparent)]
    RunDir(#[from] RunDirTooLong),
    #[error("{action} {path}: {source}")]
    Host { action: &'static str, path: PathBuf, source: io::Error },
}

/// An unprivileged account cannot get at a path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "components run as {account}, who cannot reach {path} because of {ancestor} (mode {mode:04o}): choose a place \
     outside of it, or allow passing through with `chmod o+x {ancestor}`"
)]
pub struct Unreachable {
    pub path: PathBuf,
    pub ancestor: PathBuf,
    pub account: String,
    pub mode: u32,
}

/// The host will do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Who components run as; `None` when the daemon is not root and everything runs as itself.
    pub account: Option<Account>,
    /// Worth telling, but nothing to stop for.
    pub warnings: Vec<String>,
}

/// Looks at everything, cheapest first; the first refusal ends it. Creates nothing. Blocking, a few milliseconds.
/// `wanted`: the configured account for components; `uids`: those of clusters.
pub fn check(
    layout: &Layout,
    wanted: Option<&config::Account>,
    uids: &Range<u32>,
) -> Result<Verdict, PreflightError> {
    let text = |path: &str| crate::files::trusted::text(path).unwrap_or_default();
    if !route::has_default(&text("/proc/net/route"), &text("/proc/net/ipv6_route")) {
        return Err(PreflightError::NoDefaultRoute);
    }
    layout.sockets(&"x".repeat(LONGEST_CHAIN))?;
    let account = account(wanted)?;
    if account.is_some() && !are_mapped(uids) {
        return Err(PreflightError::UidsNotMapped { first: uids.start, last: uids.end.saturating_sub(1) });
    }
    check_place(layout)?;
    for path in [layout.state(), layout.run()] {
        if let Some(account) = &account {
            check_reachable(path, account)?;
        }
    }
    let warnings = check_file_system(layout.state())?;
    Ok(Verdict { account, warnings })
}

/// Whether the state and the run directory are, or can become, this process's own. Creates nothing. Blocking.
pub fn check_place(layout: &Layout) -> Result<(), PreflightError> {
    let ours = rustix::process::geteuid().as_raw();
    check_ours(layout.state(), ours, "--state")?;
    check_ours(layout.run(), ours, "--run-dir")
}

/// Whether `account` can get to `path`: every existing directory on the way lets it pass. What does not exist yet is
/// berth's to create, passable. Blocking.
pub fn check_reachable(path: &Path, account: &Account) -> Result<(), PreflightError> {
    let existing = nearest_existing(path)?;
    for ancestor in existing.ancestors() {
        let meta = ancestor.metadata().map_err(host("examine", ancestor))?;
        if meta.is_dir()
            && !account::may_pass(meta.mode(), User { uid: meta.uid(), gid: meta.gid() }, account.user)
        {
            return Err(Unreachable {
                path: path.to_owned(),
                ancestor: ancestor.to_owned(),
                account: account.name.clone(),
                mode: meta.mode() & 0o7777,
            }
            .into());
        }
    }
    Ok(())
}

/// Creates the state and the run directory, and those that hold chains, where they are missing: passable for other accounts under root (what lies in
/// them guards itself), private otherwise. Blocking.
pub fn create_dirs(layout: &Layout) -> Result<(), FileError> {
    create(&[layout.state(), layout.run(), &layout.kcp(), &layout.clusters()])
}

/// The same for any directories of Berth's own. Blocking.
pub fn create(dirs: &[&Path]) -> Result<(), FileError> {
    let mode = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
    for &dir in dirs {
        let failed = |action| move |source| FileError { action, path: dir.to_owned(), source };
        if let Some(parent) = dir.parent() {
            fs::create_dir_all(parent).map_err(failed("create the parents of"))?;
        }
        match fs::DirBuilder::new().mode(mode).create(dir) {
            Ok(()) => {
                // The umask may have taken bits away.
                let mode = fs::Permissions::from_mode(mode);
                fs::set_permissions(dir, mode).map_err(failed("set the mode of"))?;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                // Somebody else may have made it since the check: /tmp is everybody's.
                let meta = dir.symlink_metadata().map_err(failed("examine"))?;
                let ours = rustix::process::geteuid().as_raw();
                if !dir.is_dir() || meta.uid() != ours {
                    return Err(failed("take the directory, which is not ours,")(error));
                }
            }
            Err(error) => return Err(failed("create the directory")(error)),
        }
    }
    Ok(())
}

fn check_ours(path: &Path, ours: u32, flag: &'static str) -> Result<(), PreflightError> {
    let existing = nearest_existing(path)?;
    let meta = existing.metadata().map_err(host("examine", &existing))?;
    if !meta.is_dir() {
        return Err(PreflightError::NotADirectory { path: existing, flag });
    }
    // Only the directory itself must be ours; it may lie in anybody's.
    if path.exists() && meta.uid() != ours {
        return Err(PreflightError::Foreign { path: path.to_owned(), owner: meta.uid(), ours, flag });
    }
    access(&existing, Access::WRITE_OK | Access::EXEC_OK).map_err(|errno| PreflightError::NotWritable {
        path: existing,
        ours,
        reason: errno.into(),
        flag,
    })
}

fn check_file_system(state: &Path) -> Result<Vec<String>, PreflightError> {
    let existing = nearest_existing(state)?;
    let fs =
        statvfs(&existing).map_err(|errno| host("examine the file system of", &existing)(errno.into()))?;
    if fs.f_flag.contains(StatVfsMountFlags::NOEXEC) {
        return Err(PreflightError::NoExec { path: state.to_owned() });
    }
    judge_space(state, fs.f_bavail.saturating_mul(fs.f_frsize))
}

fn judge_space(path: &Path, free: u64) -> Result<Vec<String>, PreflightError> {
    if free < SPACE_REQUIRED {
        return Err(PreflightError::NoSpace { path: path.to_owned(), free });
    }
    let short = free < SPACE_ADVISED;
    let warning = || {
        format!("{} has {} MB of free space, {} are advised", path.display(), free >> 20, SPACE_ADVISED >> 20)
    };
    Ok(short.then(warning).into_iter().collect())
}

/// The deepest part of `path` that exists, without symbolic links.
fn nearest_existing(path: &Path) -> Result<PathBuf, PreflightError> {
    let absolute = std::path::absolute(path).map_err(host("resolve", path))?;
    for part in absolute.ancestors() {
        match part.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map_err(host("resolve", part)),
        }
    }
    Ok(PathBuf::from("/"))
}

fn host<'a>(action: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> PreflightError + 'a {
    move |source| PreflightError::Host { action, path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_closed_directory_on_the_way_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let set = |mode| fs::set_permissions(dir.path(), fs::Permissions::from_mode(mode)).unwrap();
        let stranger = Account { name: "stranger".into(), user: User { uid: 4242, gid: 4242 } };
        let state = dir.path().join("not/yet/there");
        set(0o711);
        assert!(check_reachable(&state, &stranger).is_ok());
        set(0o700);
        let text = check_reachable(&state, &stranger).unwrap_err().to_string();
        assert!(text.contains(&format!("chmod o+x {}", dir.path().display())), "{text}");
        assert!(text.contains("stranger") && text.contains("0700"), "{text}");
    }

    #[test]
    fn little_space_warns_and_too_little_refuses() {
        let judge = |free| judge_space(Path::new("/state"), free);
        assert_eq!(judge(SPACE_ADVISED).unwrap(), Vec::<String>::new());
        assert!(judge(300 << 20).unwrap()[0].contains("300 MB"));
        assert!(judge(100 << 20).unwrap_err().to_string().contains("has 100 MB of free space and needs 200"));
    }

    #[test]
    fn a_file_in_the_place_of_the_state_directory_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let ours = rustix::process::geteuid().as_raw();
        let error = check_ours(file.path(), ours, "--state").unwrap_err();
        assert!(matches!(error, PreflightError::NotADirectory { .. }), "{error}");
    }

    #[test]
    fn another_users_directory_is_refused_with_both_uids() {
        let dir = tempfile::tempdir().unwrap();
        let text = check_ours(dir.path(), u32::MAX, "--state").unwrap_err().to_string();
        assert!(text.contains("not to uid 4294967295") && text.contains("--state"), "{text}");
    }

    #[test]
    fn the_directories_are_created_once_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path().join("deep/state"), Some(dir.path().join("run")));
        create_dirs(&layout).unwrap();
        create_dirs(&layout).unwrap();
        let mode = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
        assert_eq!(layout.state().metadata().unwrap().mode() & 0o7777, mode);
    }
}
