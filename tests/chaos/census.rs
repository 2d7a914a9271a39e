//! Which processes of one state directory there are, from `/proc` alone: they carry its mark in their environment.

use berth::layout::Layout;
use procfs::process::{Process as Proc, all_processes};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::OsStr;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    pub parent: i32,
    /// Clock ticks since boot.
    pub start: u64,
    pub token: String,
    /// `<chain>/<component>`
    pub component: String,
}

#[derive(Debug, Clone)]
pub struct Census(pub Vec<Process>);

impl Census {
    pub fn take(layout: &Layout) -> Self {
        let state = layout.state().canonicalize().unwrap();
        let digest = hex::encode(Sha256::digest(state.as_os_str().as_encoded_bytes()));
        let mark = format!("{}/", &digest[..16]);
        let mut found: Vec<Process> =
            all_processes().unwrap().filter_map(|process| look(&process.ok()?, &mark)).collect();
        found.sort_by_key(|process| process.pid);
        Self(found)
    }

    /// By component: processes that no other process of the same life started.
    pub fn mains(&self) -> BTreeMap<&str, Vec<&Process>> {
        let by_pid: HashMap<i32, &Process> = self.0.iter().map(|process| (process.pid, process)).collect();
        let mut mains = BTreeMap::<&str, Vec<&Process>>::new();
        for process in &self.0 {
            if by_pid.get(&process.parent).is_none_or(|parent| parent.token != process.token) {
                mains.entry(&process.component).or_default().push(process);
            }
        }
        mains
    }

    /// The one main process of each component: pid and start.
    pub fn identities(&self) -> BTreeMap<String, (i32, u64)> {
        let of = |mains: Vec<&Process>| mains.first().map(|main| (main.pid, main.start));
        self.mains().into_iter().filter_map(|(name, mains)| Some((name.to_owned(), of(mains)?))).collect()
    }

    pub fn tokens(&self, component: &str) -> BTreeSet<&str> {
        let of_component = self.0.iter().filter(|process| process.component == component);
        of_component.map(|process| process.token.as_str()).collect()
    }
}

fn look(process: &Proc, mark: &str) -> Option<Process> {
    let stat = process.stat().ok()?;
    if ['Z', 'X'].contains(&stat.state) {
        return None;
    }
    let environ = process.environ().ok()?;
    let variable = |name: &str| environ.get(OsStr::new(name)).and_then(|value| value.to_str());
    Some(Process {
        pid: stat.pid,
        parent: stat.ppid,
        start: stat.starttime,
        token: variable("BERTH_RUN_TOKEN").unwrap_or_default().to_owned(),
        component: variable("BERTH_COMPONENT")?.strip_prefix(mark)?.to_owned(),
    })
}

impl Process {
    /// Through a pidfd, so that a pid that was given away meanwhile is nobody's end.
    pub fn signal(&self, signal: Signal) {
        let Ok(pidfd) = pidfd_open(Pid::from_raw(self.pid).unwrap(), PidfdFlags::empty()) else { return };
        let start = Proc::new(self.pid).and_then(|process| process.stat()).map(|stat| stat.starttime);
        if start.is_ok_and(|start| start == self.start) {
            let _ = pidfd_send_signal(pidfd, signal);
        }
    }
}
