//! What a component may take of the host, written into its cgroup: before its birth, and again when it is adopted.
//!
//! The host calls [`Limiter::apply`]. Controllers are enabled where they are delegated; a limit that was asked for and is not in
//! force never keeps a component from starting: it is told by [`Limiter::remarks`], which `berth status` shows.

use super::cgroup::{Cgroup, CgroupRoot};
use berth_actors::identity::ComponentId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

/// `None`: as much as there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes. Beyond it everything of the component is killed at once.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u32>,
    /// Hundredths of one CPU.
    pub cpu_percent: Option<u32>,
    /// Of each process by itself, from its birth on.
    pub open_files: Option<u64>,
    /// Bytes of a core dump, likewise.
    pub core_size: Option<u64>,
}

/// What `cpu.max` counts in: microseconds, of which a share may be used.
const CPU_PERIOD: u64 = 100_000;

impl Limits {
    /// Whether its cgroup needs none.
    pub fn is_none(&self) -> bool {
        self.memory.is_none() && self.processes.is_none() && self.cpu_percent.is_none()
    }

    /// By controller, the file and what is written to it.
    fn files(self) -> [(&'static str, &'static str, Option<String>); 4] {
        let quota = |percent: u32| format!("{} {CPU_PERIOD}", u64::from(percent) * CPU_PERIOD / 100);
        [
            ("memory", "memory.max", self.memory.map(|bytes| bytes.to_string())),
            // A component that lost one of its processes would be neither alive nor dead.
            ("memory", "memory.oom.group", self.memory.map(|_| "1".to_owned())),
            ("pids", "pids.max", self.processes.map(|count| count.to_string())),
            ("cpu", "cpu.max", self.cpu_percent.map(quota)),
        ]
    }

    fn controllers(self) -> Vec<&'static str> {
        let mut controllers: Vec<_> =
            self.files().into_iter().filter_map(|(controller, _, value)| value.map(|_| controller)).collect();
        controllers.dedup();
        controllers
    }
}

/// The limits of every component: of all of them, of one wherever it is, of one in one chain.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ComponentLimits(BTreeMap<String, Limits>);

impl ComponentLimits {
    /// Named `default`, `kine` or `demo/kine`.
    pub fn new(named: impl IntoIterator<Item = (String, Limits)>) -> Self {
        Self(named.into_iter().collect())
    }

    /// For each limit, the narrowest name that has it decides.
    pub fn of(&self, component: &ComponentId) -> Limits {
        let names = ["default".to_owned(), component.component.clone(), component.to_string()];
        names.iter().filter_map(|name| self.0.get(name)).fold(Limits::default(), |wide, narrow| Limits {
            memory: narrow.memory.or(wide.memory),
            processes: narrow.processes.or(wide.processes),
            cpu_percent: narrow.cpu_percent.or(wide.cpu_percent),
            open_files: narrow.open_files.or(wide.open_files),
            core_size: narrow.core_size.or(wide.core_size),
        })
    }
}

/// Why a limit is not in force.
#[derive(Debug, thiserror::Error)]
pub(super) enum LimitError {
    #[error("there is no cgroup for components")]
    NoCgroup,
    #[error(
        "the controller {controller} is not delegated to {place}: for a systemd unit, write Delegate=yes"
    )]
    NotDelegated { controller: &'static str, place: String },
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
}

#[derive(Debug, Default)]
pub(super) struct Limiter {
    wanted: ComponentLimits,
    /// Components whose limits are not in force, and why.
    missing: Mutex<BTreeMap<ComponentId, String>>,
}

impl Limiter {
    pub(super) fn new(wanted: ComponentLimits) -> Self {
        Self { wanted, missing: Mutex::default() }
    }

    pub(super) fn of(&self, component: &ComponentId) -> Limits {
        self.wanted.of(component)
    }

    /// Whether anybody asked for limits: a birth looks at nothing where nobody did.
    pub(super) fn limits_any(&self) -> bool {
        self.wanted.0.values().any(|limits| !limits.is_none())
    }

    /// Blocking.
    pub(super) fn apply(&self, component: &ComponentId, root: Option<&CgroupRoot>, cgroup: Option<&Cgroup>) {
        let limits = self.wanted.of(component);
        let applied = match (root, cgroup) {
            (Some(root), Some(cgroup)) => apply(limits, root, cgroup),
            _ if limits.is_none() => Ok(()),
            _ => Err(LimitError::NoCgroup),
        };
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        match applied {
            Ok(()) => drop(missing.remove(component)),
            Err(error) => {
                let reason = error.to_string();
                if missing.insert(component.clone(), reason.clone()).as_ref() != Some(&reason) {
                    tracing::warn!(%component, %reason, "it runs without its limits");
                }
            }
        }
    }

    /// One line for each reason, with the components it concerns.
    pub(super) fn remarks(&self) -> Vec<String> {
        let missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut reasons: BTreeMap<&str, Vec<&ComponentId>> = BTreeMap::new();
        for (component, reason) in &*missing {
            reasons.entry(reason).or_default().push(component);
        }
        let line = |(reason, components): (&str, Vec<&ComponentId>)| {
            format!("no limits for {}: {reason}", Names(&components))
        };
        reasons.into_iter().map(line).collect()
    }
}

/// As many names as fit on a line.
struct Names<'a>(&'a [&'a ComponentId]);

impl fmt::Display for Names<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const FIT: usize = 3;
        let shown: Vec<_> = self.0.iter().take(FIT).map(ToString::to_string).collect();
        f.write_str(&shown.join(", "))?;
        match self.0.len().saturating_sub(FIT) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Also lifts what an earlier life or an earlier configuration had set.
fn apply(limits: Limits, root: &CgroupRoot, cgroup: &Cgroup) -> Result<(), LimitError> {
    root.enable(&limits.controllers())?;
    for (_, file, value) in limits.files() {
        let none = if file == "memory.oom.group" { "0" } else { "max" };
        let path = cgroup.path().join(file);
        match &value {
            // Where there is no such file there is no limit to lift.
            None if !path.exists() => {}
            value => {
                let value = value.as_deref().unwrap_or(none);
                let what = || format!("set {file} of {} to {value}", cgroup.path().display());
                super::cgroup::tell(&path, value)
                    .map_err(|source| LimitError::Io { what: what(), source })?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::process::mark::StateMark;
    use std::fs::{self, File};
    use std::path::{Path, PathBuf};

    /// Directories and files as a kernel with these controllers would show them; nothing in it is enforced.
    struct Hierarchy {
        dir: tempfile::TempDir,
        root: CgroupRoot,
    }

    impl Hierarchy {
        fn with(controllers: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let mark = StateMark::of(&Layout::new(dir.path().to_owned(), None));
            let place = dir.path().join("berth.service");
            let root = place.join(format!("berth-{}", mark.as_str()));
            fs::create_dir_all(&root).unwrap();
            File::create(root.join("cgroup.kill")).unwrap();
            for at in [&place, &root] {
                File::create(at.join("cgroup.subtree_control")).unwrap();
            }
            crate::files::write_atomic(&place.join("cgroup.controllers"), controllers.as_bytes(), None)
                .unwrap();
            Self { root: CgroupRoot::among(&[place], &mark).unwrap(), dir }
        }

        fn cgroup(&self, files: &[&str]) -> Cgroup {
            let cgroup = self.root.enter(&kine()).unwrap().0;
            for file in files {
                File::create(cgroup.path().join(file)).unwrap();
            }
            cgroup
        }

        fn read(&self, path: impl AsRef<Path>) -> String {
            fs::read_to_string(self.dir.path().join(path)).unwrap()
        }
    }

    const FILES: [&str; 4] = ["memory.max", "memory.oom.group", "pids.max", "cpu.max"];

    fn kine() -> ComponentId {
        ComponentId::new("demo", "kine")
    }

    fn limiter(limits: Limits) -> Limiter {
        Limiter::new(ComponentLimits::new([("kine".to_owned(), limits)]))
    }

    fn told(cgroup: &Cgroup) -> [String; 4] {
        FILES.map(|file| fs::read_to_string(cgroup.path().join(file)).unwrap())
    }

    #[test]
    fn what_is_asked_for_is_written_and_its_controllers_are_enabled_above() {
        let hierarchy = Hierarchy::with("cpuset cpu memory pids\n");
        let cgroup = hierarchy.cgroup(&FILES);
        let limiter = limiter(Limits {
            memory: Some(1 << 30),
            processes: Some(64),
            cpu_percent: Some(150),
            ..Limits::default()
        });
        limiter.apply(&kine(), Some(&hierarchy.root), Some(&cgroup));
        assert_eq!(limiter.remarks(), [""; 0]);
        assert_eq!(told(&cgroup), ["1073741824", "1", "64", "150000 100000"]);
        assert_eq!(hierarchy.read("berth.service/cgroup.subtree_control"), "+memory +pids +cpu");
        let root: PathBuf = cgroup.path().parent().unwrap().join("cgroup.subtree_control");
        assert_eq!(fs::read_to_string(root).unwrap(), "+memory +pids +cpu");
    }

    #[test]
    fn a_limit_that_is_gone_from_the_configuration_is_lifted() {
        let hierarchy = Hierarchy::with("memory pids cpu\n");
        let cgroup = hierarchy.cgroup(&FILES);
        limiter(Limits::default()).apply(&kine(), Some(&hierarchy.root), Some(&cgroup));
        assert_eq!(told(&cgroup), ["max", "0", "max", "max"]);
    }

    #[test]
    fn a_controller_that_is_not_delegated_is_said_and_nobody_waits_for_it() {
        let hierarchy = Hierarchy::with("hugetlb\n");
        let cgroup = hierarchy.cgroup(&[]);
        let limiter = limiter(Limits { memory: Some(1 << 30), ..Limits::default() });
        limiter.apply(&kine(), Some(&hierarchy.root), Some(&cgroup));
        let remarks = limiter.remarks();
        assert_eq!(remarks.len(), 1);
        assert!(
            remarks[0].starts_with("no limits for demo/kine: the controller memory is not delegated to ")
        );
        limiter.apply(&kine(), None, None);
        assert_eq!(limiter.remarks(), ["no limits for demo/kine: there is no cgroup for components"]);
    }

    #[test]
    fn who_asks_for_nothing_is_told_nothing() {
        let limiter = limiter(Limits { memory: Some(1 << 30), ..Limits::default() });
        limiter.apply(&ComponentId::new("demo", "postgres"), None, None);
        assert_eq!(limiter.remarks(), [""; 0]);
    }
}
