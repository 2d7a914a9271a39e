//! A cgroup per component, wherever a writable cgroup v2 hierarchy is: the surest way to kill everything of it.
//!
//! The host creates one before each spawn and removes it after the reap. Controllers are enabled only where a limit asks for
//! them ([`super::limits`]). Where there is no such hierarchy, the process table finds what belongs together.

use super::limits::LimitError;
use super::mark::StateMark;
use super::reap::Targets;
use super::{hierarchy, identity};
use berth_actors::identity::ComponentId;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// `<cgroup of the daemon>/berth-<state hash>`.
#[derive(Debug, Clone)]
pub(super) struct CgroupRoot(PathBuf);

/// Why components are reaped by process group, parents and token instead.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoCgroup {
    #[error("cgroup v2 is not mounted")]
    NotMounted,
    #[error("{0}")]
    Unreadable(io::Error),
    #[error("{} cannot be used: {reason}", .path.display())]
    Unusable { path: PathBuf, reason: io::Error },
}

impl CgroupRoot {
    /// `None`, with one warning in the log, when this host has no cgroup v2 that the daemon may write to. Blocking.
    pub(super) fn find(mark: &StateMark) -> Option<Self> {
        let found = Self::look(mark);
        let warn = |reason: &NoCgroup| {
            tracing::warn!(%reason, "no cgroup for components: they are reaped by process group, parents and token");
        };
        found.inspect_err(warn).ok()
    }

    /// The same for who only asks what an earlier daemon left there. Blocking.
    pub(super) fn look(mark: &StateMark) -> Result<Self, NoCgroup> {
        let places = hierarchy::own_cgroups().map_err(NoCgroup::Unreadable)?;
        Self::among(&places, mark)
    }

    /// The first of `places` in which components can have cgroups.
    pub(super) fn among(places: &[PathBuf], mark: &StateMark) -> Result<Self, NoCgroup> {
        let mut reason = NoCgroup::NotMounted;
        // A daemon that was moved to make room for controllers works where it was before.
        let above = |place: &PathBuf| place.parent().filter(|_| place.ends_with(OWN)).map(Path::to_owned);
        for place in places.iter().map(|place| above(place).unwrap_or_else(|| place.clone())) {
            let root = place.join(format!("berth-{}", mark.as_str()));
            match probe(&root) {
                Ok(()) => return Ok(Self(root)),
                Err(error) => reason = NoCgroup::Unusable { path: root, reason: error },
            }
        }
        Err(reason)
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

    /// The component's cgroup, which is empty, for a child to be born in: that of the life before where it is still there.
    pub(super) fn enter(&self, component: &ComponentId) -> io::Result<(Cgroup, OwnedFd)> {
        let cgroup = Cgroup(self.0.join(format!("{}.{}", component.chain, component.component)));
        let opened = match open(&cgroup.0) {
            Err(Errno::NOENT) => {
                // Twice: the last component to go may remove the parent in between.
                fs::create_dir_all(&cgroup.0).or_else(|_| fs::create_dir_all(&cgroup.0))?;
                open(&cgroup.0)
            }
            opened => opened,
        };
        Ok((cgroup, opened?))
    }
}

fn open(dir: &Path) -> rustix::io::Result<OwnedFd> {
    rustix::fs::open(dir, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// The daemon's own cgroup, once controllers are enabled: the kernel wants no processes where they are handed on.
const OWN: &str = "berth-daemon";

impl CgroupRoot {
    /// Hands the controllers on to the components' cgroups. Harmless when they are. Blocking.
    pub(super) fn enable(&self, controllers: &[&'static str]) -> Result<(), LimitError> {
        let Some(place) = self.0.parent().filter(|_| !controllers.is_empty()) else { return Ok(()) };
        let failed = |what: &str| {
            let what = format!("{what} {}", place.display());
            move |source| LimitError::Io { what, source }
        };
        let there = crate::files::trusted::text(place.join("cgroup.controllers"))
            .map_err(failed("read the controllers of"))?;
        if let Some(missing) =
            controllers.iter().find(|wanted| !there.split_whitespace().any(|is| is == **wanted))
        {
            return Err(LimitError::NotDelegated { controller: missing, place: place.display().to_string() });
        }
        let order =
            controllers.iter().map(|controller| format!("+{controller}")).collect::<Vec<_>>().join(" ");
        let hand_on = |dir: &Path| tell(&dir.join("cgroup.subtree_control"), &order);
        let handed_on = hand_on(place).or_else(|error| {
            if error.raw_os_error() != Some(rustix::io::Errno::BUSY.raw_os_error()) {
                return Err(error);
            }
            let own = place.join(OWN);
            fs::create_dir_all(&own)?;
            tell(&own.join("cgroup.procs"), &std::process::id().to_string())?;
            hand_on(place)
        });
        handed_on.and_then(|()| hand_on(&self.0)).map_err(failed("enable controllers in"))
    }
}

/// One word for the kernel, in one call. Never creates a file.
pub(super) fn tell(file: &Path, word: &str) -> io::Result<()> {
    let file = rustix::fs::open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(file, word.as_bytes())?;
    Ok(())
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

    /// SIGKILLs every member at once, before any of them can fork out of reach, and lists who has not died yet.
    pub(super) fn kill(&self) -> io::Result<Targets> {
        let mut living = Targets::new();
        members(&self.0, &mut living)?;
        if !living.is_empty() {
            tell(&self.0.join("cgroup.kill"), "1")?;
        }
        Ok(living)
    }

    /// Whether the kernel killed somebody in it for want of memory, since it was made. One read from memory.
    pub(super) fn has_run_out_of_memory(&self) -> bool {
        let events = crate::files::trusted::text(self.0.join("memory.events")).unwrap_or_default();
        events.lines().any(|line| line.strip_prefix("oom_kill ").is_some_and(|count| count != "0"))
    }

    /// Whether nobody lives in it or below it, by the kernel's own count. One read from memory; false where it cannot be told.
    pub(super) fn is_empty(&self) -> bool {
        let events = crate::files::trusted::text(self.0.join("cgroup.events")).unwrap_or_default();
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
    let pids = match crate::files::trusted::text(dir.join("cgroup.procs")) {
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound) => return Ok(()),
        pids => pids?,
    };
    let identities =
        pids.lines().filter_map(|pid| identity::of(pid.parse().ok()?)).filter(identity::is_alive);
    living.extend(identities.map(|identity| {
        let name = crate::files::trusted::text(format!("/proc/{}/comm", identity.pid)).unwrap_or_default();
        ((&identity).into(), name.trim_end().to_owned())
    }));
    for entry in fs::read_dir(dir)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            members(&entry.path(), living)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;

    #[test]
    fn without_a_hierarchy_or_its_kill_file_the_reason_names_the_place() {
        let dir = tempfile::tempdir().unwrap();
        let mark = StateMark::of(&Layout::new(dir.path().to_owned(), None));
        let reason = |places: &[PathBuf]| CgroupRoot::among(places, &mark).unwrap_err().to_string();
        assert_eq!(reason(&[]), "cgroup v2 is not mounted");
        let no_hierarchy = dir.path().join("plain");
        fs::create_dir(&no_hierarchy).unwrap();
        let without_kill = reason(std::slice::from_ref(&no_hierarchy));
        assert!(without_kill.contains("plain") && without_kill.contains("No such file"), "{without_kill}");
        assert_eq!(fs::read_dir(&no_hierarchy).unwrap().count(), 0, "the attempt leaves nothing");
        let nowhere_to_write = reason(&["/proc/self/fdinfo".into()]);
        assert!(nowhere_to_write.contains("/proc/self/fdinfo"), "{nowhere_to_write}");
    }

    #[test]
    fn a_place_that_cannot_be_used_does_not_hide_the_next_one() {
        let dir = tempfile::tempdir().unwrap();
        let mark = StateMark::of(&Layout::new(dir.path().to_owned(), None));
        let [plain, usable] = ["plain", "usable"].map(|name| dir.path().join(name));
        fs::create_dir(&plain).unwrap();
        // As a cgroup that an earlier daemon's components are in.
        let root = usable.join(format!("berth-{}", mark.as_str()));
        fs::create_dir_all(&root).unwrap();
        fs::File::create(root.join("cgroup.kill")).unwrap();
        assert_eq!(CgroupRoot::among(&[plain, usable], &mark).unwrap().0, root);
    }
}
