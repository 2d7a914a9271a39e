//! What must be true of the host before anything starts. The daemon asks once, early, and every refusal says what to do.
//!
//! The parsers and the verdicts are pure; [`check`] reads the host and changes nothing. [`create_dirs`] is its only writer.

use crate::files::FileError;
use crate::layout::{Layout, RunDirTooLong};
use berth_actors::spec::User;
use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A tenant's empty PostgreSQL and its write-ahead log take about 100 MB; with less than this the first start fails midway.
const SPACE_REQUIRED: u64 = 200 << 20;
/// The components take 0.6 GB, and a Go build cache often lies on the same file system.
const SPACE_ADVISED: u64 = 2 << 30;
/// The longest name a tenant may have (N4).
const LONGEST_CHAIN: usize = 40;
/// Accounts for components of a root daemon, the first that exists.
const ACCOUNTS: [&str; 2] = ["berth", "nobody"];

#[derive(Debug, thiserror::Error)]
pub enum PreflightError {
    #[error(
        "the host has no default route, and kcp picks its address from it and refuses to start: add one; without a network, \
         `ip address add 192.0.2.1/32 dev lo && ip route add default dev lo` is enough"
    )]
    NoDefaultRoute,
    #[error(
        "berth runs as root, PostgreSQL refuses to, and there is no account for it: create one with \
         `useradd --system --shell /usr/sbin/nologin berth`"
    )]
    NoAccount,
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

/// An account of /etc/passwd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub user: User,
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
pub fn check(layout: &Layout) -> Result<Verdict, PreflightError> {
    let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
    if !has_default_route(&text("/proc/net/route"), &text("/proc/net/ipv6_route")) {
        return Err(PreflightError::NoDefaultRoute);
    }
    layout.sockets(&"x".repeat(LONGEST_CHAIN))?;
    let ours = rustix::process::geteuid();
    let account = account();
    if ours.is_root() && account.is_none() {
        return Err(PreflightError::NoAccount);
    }
    for (path, flag) in [(layout.state(), "--state"), (layout.run(), "--run-dir")] {
        check_ours(path, ours.as_raw(), flag)?;
        if let Some(account) = &account {
            check_reachable(path, account)?;
        }
    }
    let warnings = check_file_system(layout.state())?;
    Ok(Verdict { account, warnings })
}

/// Who components run as: an unprivileged account when this process is root and there is one. Blocking.
pub fn account() -> Option<Account> {
    let passwd = || fs::read_to_string("/etc/passwd").unwrap_or_default();
    rustix::process::geteuid().is_root().then(passwd).and_then(|passwd| choose_account(&passwd))
}

/// Whether `account` can get to `path`: every existing directory on the way lets it pass. What does not exist yet is
/// berth's to create, passable. Blocking.
pub fn check_reachable(path: &Path, account: &Account) -> Result<(), PreflightError> {
    let existing = nearest_existing(path)?;
    for ancestor in existing.ancestors() {
        let meta = ancestor.metadata().map_err(host("examine", ancestor))?;
        if meta.is_dir() && !may_pass(meta.mode(), User { uid: meta.uid(), gid: meta.gid() }, account.user) {
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

/// Creates the state and the run directory where they are missing: passable for other accounts under root (what lies in
/// them guards itself), private otherwise. Blocking.
pub fn create_dirs(layout: &Layout) -> Result<(), FileError> {
    let mode = if rustix::process::geteuid().is_root() { 0o711 } else { 0o700 };
    for dir in [layout.state(), layout.run()] {
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
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => {}
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

/// Reads `/proc/net/route` and `/proc/net/ipv6_route`: a usable route to everywhere, in either family.
fn has_default_route(v4: &str, v6: &str) -> bool {
    // linux/route.h. A rejecting route says that there is none; every IPv6 host has one on lo.
    const UP: u32 = 0x1;
    const REJECT: u32 = 0x200;
    let usable = |flags: &str| u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & (UP | REJECT) == UP);
    let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let v4 = v4.lines().map(fields).any(|route| {
        matches!(&route[..], [_, destination, _, flags, _, _, _, mask, ..]
            if destination == "00000000" && mask == "00000000" && usable(flags))
    });
    let v6 = v6.lines().map(fields).any(|route| {
        matches!(&route[..], [destination, length, _, _, _, _, _, _, flags, ..]
            if length == "00" && destination.bytes().all(|digit| digit == b'0') && usable(flags))
    });
    v4 || v6
}

/// The account components run as when the daemon is root.
fn choose_account(passwd: &str) -> Option<Account> {
    let accounts: Vec<_> = passwd.lines().filter_map(parse_account).collect();
    ACCOUNTS.iter().find_map(|wanted| accounts.iter().find(|account| account.name == *wanted).cloned())
}

/// One line of passwd(5). An account with root's uid is no way out of root.
fn parse_account(line: &str) -> Option<Account> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    (uid != 0).then_some(Account { name, user: User { uid, gid } })
}

/// The search permission the kernel would look at, for an account without supplementary groups.
fn may_pass(mode: u32, owner: User, account: User) -> bool {
    let bit = if owner.uid == account.uid {
        0o100
    } else if owner.gid == account.gid {
        0o010
    } else {
        0o001
    };
    mode & bit != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4_HEADER: &str =
        "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n";
    const V4_DEFAULT: &str = "eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n";
    const V4_SUBNET: &str = "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";
    const V4_UNREACHABLE: &str = "*\t00000000\t00000000\t0201\t0\t0\t0\t00000000\t0\t0\t0\n";
    const V6_REJECT: &str = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
        00000000000000000000000000000000 ffffffff 00000001 00000000 00200200       lo\n";
    const V6_DEFAULT: &str = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 \
        fd000000000000000000000000000001 00000400 00000002 00000000 00000003     eth0\n";

    #[test]
    fn a_default_route_of_either_family_is_enough() {
        let table = |rows: &[&str]| [&[V4_HEADER], rows].concat().concat();
        assert!(has_default_route(&table(&[V4_SUBNET, V4_DEFAULT]), V6_REJECT));
        assert!(has_default_route(&table(&[V4_SUBNET]), &[V6_REJECT, V6_DEFAULT].concat()));
        assert!(!has_default_route(&table(&[V4_SUBNET, V4_UNREACHABLE]), V6_REJECT));
        assert!(!has_default_route("", ""));
    }

    #[test]
    fn the_own_account_is_preferred_to_nobody_and_root_is_never_taken() {
        let nobody =
            "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
        let both = format!("{nobody}berth:x:990:988::/var/lib/berth:/usr/sbin/nologin\n");
        let chosen = |passwd: &str| choose_account(passwd).map(|account| (account.name, account.user.uid));
        assert_eq!(chosen(&both), Some(("berth".into(), 990)));
        assert_eq!(chosen(nobody), Some(("nobody".into(), 65534)));
        assert_eq!(chosen("berth:x:0:0::/:/bin/sh\ntorn:x\n"), None);
    }

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
    fn search_permission_is_that_of_the_first_class_that_fits() {
        let user = |uid, gid| User { uid, gid };
        assert!(!may_pass(0o011, user(1, 1), user(1, 1)), "the owner has no other rights than the owner's");
        assert!(may_pass(0o010, user(2, 1), user(1, 1)));
        assert!(!may_pass(0o110, user(2, 2), user(1, 1)));
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
