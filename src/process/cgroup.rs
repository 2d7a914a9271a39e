//! A cgroup per component, wherever a writable cgroup v2 hierarchy is: the surest way to kill everything of it.
//!
//! The host creates one before each spawn and removes it after the reap. Sets no limits and enables no controllers. Where
//! there is no such hierarchy, the process table finds what belongs together.

use super::identity;
use super::mark::StateMark;
use super::reap::Targets;
use berth_actors::identity::ComponentId;
use procfs::process::Process;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// `<cgroup of the daemon>/berth-<state hash>`.
#[derive(Debug, Clone)]
pub(super) struct CgroupRoot(PathBuf);

impl CgroupRoot {
    /// `None`, with a line in the log, when this host has no cgroup v2 that the daemon may write to. Blocking.
    pub(super) fn find(mark: &StateMark) -> Option<Self> {
        let root = match own_cgroup() {
            Ok(own) => own.join(format!("berth-{}", mark.as_str())),
            Err(error) => {
                tracing::info!(%error, "no cgroup v2: components are reaped by process group, parents and token");
                return None;
            }
        };
        match probe(&root) {
            Ok(()) => Some(Self(root)),
            Err(error) => {
                tracing::info!(path = %root.display(), %error, "no writable cgroup v2 with cgroup.kill: components are reaped by process group, parents and token");
                None
            }
        }
    }

    /// Whether a component's cgroup, wherever it is mounted, is one of this state directory.
    pub(super) fn is_of(cgroup: &Path, mark: &StateMark) -> bool {
        let root = cgroup.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        root.is_some_and(|root| root.strip_prefix("berth-") == Some(mark.as_str()))
    }

    /// Every component that has a cgroup here, whatever the ledger says.
    pub(super) fn all(&self) -> Vec<(ComponentId, Cgroup)> {
        let dirs = fs::read_dir(&self.0).into_iter().flatten().flatten();
        dirs.filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let (chain, component) = name.split_once('.').filter(|_| entry.path().is_dir())?;
            Some((ComponentId::new(chain, component), Cgroup(entry.path())))
        })
        .collect()
    }

    /// An empty cgroup for a component that is about to be born.
    pub(super) fn create(&self, component: &ComponentId) -> io::Result<Cgroup> {
        let dir = self.0.join(format!("{}.{}", component.chain, component.component));
        // Twice: the last component to go may remove the parent in between.
        fs::create_dir_all(&dir).or_else(|_| fs::create_dir_all(&dir))?;
        Ok(Cgroup(dir))
    }
}

fn probe(root: &Path) -> io::Result<()> {
    fs::create_dir_all(root)?;
    let kill = fs::metadata(root.join("cgroup.kill")).map(drop);
    // Stays where an earlier daemon's components are in it.
    let _ = fs::remove_dir(root);
    kill
}

/// One component's cgroup.
#[derive(Debug, Clone)]
pub(super) struct Cgroup(PathBuf);

impl Cgroup {
    /// As the ledger recorded it.
    pub(super) fn at(dir: PathBuf) -> Self {
        Self(dir)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// For a child to be born in.
    pub(super) fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::open(&self.0, flags, Mode::empty())?)
    }

    /// SIGKILLs every member at once, before any of them can fork out of reach, and lists who has not died yet.
    pub(super) fn kill(&self) -> io::Result<Targets> {
        let mut living = Targets::new();
        members(&self.0, &mut living)?;
        if !living.is_empty() {
            let flags = OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::io::write(rustix::fs::open(self.0.join("cgroup.kill"), flags, Mode::empty())?, b"1")?;
        }
        Ok(living)
    }

    /// Whether nobody lives in it or below it, by the kernel's own count. One read from memory; false where it cannot be told.
    pub(super) fn is_empty(&self) -> bool {
        let events = fs::read_to_string(self.0.join("cgroup.events")).unwrap_or_default();
        events.lines().any(|line| line == "populated 0")
    }

    /// Removes the empty cgroup, and the root after the last one. What cannot be removed yet is reused by the next start.
    pub(super) fn remove(&self) {
        remove_below(&self.0);
        if fs::remove_dir(&self.0).is_ok()
            && let Some(root) = self.0.parent()
        {
            let _ = fs::remove_dir(root);
        }
    }
}

fn remove_below(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_below(&entry.path());
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The living processes in `dir` and in whatever cgroups its members made below it. One that is gone is empty.
fn members(dir: &Path, living: &mut Targets) -> io::Result<()> {
    let pids = match fs::read_to_string(dir.join("cgroup.procs")) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound) => return Ok(()),
        pids => pids?,
    };
    let identities =
        pids.lines().filter_map(|pid| identity::of(pid.parse().ok()?)).filter(identity::is_alive);
    living.extend(identities.map(|identity| {
        let name = fs::read_to_string(format!("/proc/{}/comm", identity.pid)).unwrap_or_default();
        ((&identity).into(), name.trim_end().to_owned())
    }));
    for entry in fs::read_dir(dir)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            members(&entry.path(), living)?;
        }
    }
    Ok(())
}

/// The daemon's own cgroup as a directory: with a delegated systemd unit, the one place where it may create others.
fn own_cgroup() -> io::Result<PathBuf> {
    let me = Process::myself().map_err(io::Error::other)?;
    let mounts = me.mountinfo().map_err(io::Error::other)?;
    let mount = mounts
        .iter()
        .find(|mount| mount.fs_type == "cgroup2")
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "cgroup2 is not mounted"))?;
    let membership = fs::read_to_string("/proc/self/cgroup")?;
    Ok(locate(&mount.mount_point, &mount.root, &membership))
}

/// Where the unified line of `/proc/self/cgroup` lies under a mount that shows the hierarchy from `mount_root` down. A
/// membership outside of it (a container's view) leaves the mount point itself.
fn locate(mount_point: &Path, mount_root: &str, membership: &str) -> PathBuf {
    let own = membership.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    match Path::new(own).strip_prefix(mount_root) {
        Ok(below) if !below.components().any(|part| part == std::path::Component::ParentDir) => {
            mount_point.join(below)
        }
        _ => mount_point.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_cgroup_is_found_under_every_kind_of_mount() {
        let at = |mount: &str, root: &str, membership: &str| {
            locate(Path::new(mount), root, membership).display().to_string()
        };
        let unit = "0::/system.slice/berth.service\n";
        assert_eq!(at("/sys/fs/cgroup", "/", unit), "/sys/fs/cgroup/system.slice/berth.service");
        assert_eq!(at("/sys/fs/cgroup/unified", "/", "4:memory:/x\n0::/\n"), "/sys/fs/cgroup/unified/");
        assert_eq!(at("/cg", "/system.slice", unit), "/cg/berth.service");
        assert_eq!(at("/cg", "/user.slice", unit), "/cg");
        assert_eq!(at("/cg", "/", "0::/../outside\n"), "/cg");
        assert_eq!(at("/cg", "/", "1:cpu:/v1-only\n"), "/cg/");
    }
}
