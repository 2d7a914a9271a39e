//! What a process is started with, and what the tree is told about each step of a chain.

use crate::host::{Blueprint, Guard};
use crate::policy::RestartPolicy;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Everything `execve` needs. Built anew before every start, so a restart sees today's ports and credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct ProcessSpec {
    /// The file that is executed.
    pub program: PathBuf,
    /// `argv[0]` when it must differ from `program` (a binary that answers to several names).
    pub arg0: Option<String>,
    /// Arguments after `argv[0]`. Never a secret: `/proc/<pid>/cmdline` is world-readable.
    pub args: Vec<String>,
    /// The whole environment; nothing is inherited. Secrets may be here: `/proc/<pid>/environ` is the owner's alone.
    pub env: BTreeMap<String, String>,
    /// Variables of this start alone. A process that was started without them is still the one that is wanted.
    pub start_env: BTreeMap<String, String>,
    /// Working directory.
    pub dir: PathBuf,
    /// Standard output and error are appended to this file (mode 0600); the child itself holds it open.
    pub output: PathBuf,
    /// User and group the process runs as; `None` keeps the daemon's own.
    pub user: Option<User>,
    /// One more open file, which the process says it is ready on.
    pub ready: Option<Passed>,
}

/// An open file that a process finds under a number of its own.
#[derive(Debug, Clone)]
pub struct Passed {
    /// 3 or more.
    pub number: i32,
    pub file: Arc<OwnedFd>,
}

impl PartialEq for Passed {
    /// The same open file, not one like it.
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number && Arc::ptr_eq(&self.file, &other.file)
    }
}

impl Eq for Passed {}

/// An unprivileged account a component runs under when the daemon is root.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

impl ProcessSpec {
    /// Tells whether a running process is what a start today would bring: SHA-256 over everything but [`Self::start_env`],
    /// in hexadecimal. Secrets of the environment go into it, and nothing of them comes out.
    pub fn digest(&self) -> String {
        let mut digest = Sha256::new();
        // Each part with its length, so that no two lists of parts look alike.
        let mut part = |bytes: &[u8]| {
            digest.update((bytes.len() as u64).to_le_bytes());
            digest.update(bytes);
        };
        for path in [&self.program, &self.dir, &self.output] {
            part(path.as_os_str().as_encoded_bytes());
        }
        part(self.arg0.as_deref().unwrap_or_default().as_bytes());
        part(format!("{:?}", self.user).as_bytes());
        part(&self.args.len().to_le_bytes());
        self.args.iter().for_each(|arg| part(OsStr::new(arg).as_encoded_bytes()));
        for (name, value) in &self.env {
            part(name.as_bytes());
            part(value.as_bytes());
        }
        let bytes: [u8; 32] = digest.finalize().into();
        bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }
}

impl fmt::Debug for ProcessSpec {
    /// Names the environment's keys, never its values: a spec ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProcessSpec")
            .field("program", &self.program)
            .field("arg0", &self.arg0)
            .field("args", &self.args)
            .field("env", &self.env.keys().chain(self.start_env.keys()).collect::<Vec<_>>())
            .field("dir", &self.dir)
            .field("output", &self.output)
            .field("user", &self.user)
            .field("ready", &self.ready)
            .finish()
    }
}

/// The signals a stop may send. Names as in signal(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Signal {
    Int,
    Term,
    Kill,
}

/// How a component is asked to end, and how long it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StopPlan {
    /// postgres: `Int` (a `Term` waits for open sessions for ever); everything else: `Term`.
    pub signal: Signal,
    /// From the signal to SIGKILL of whatever is left.
    pub deadline: Duration,
    /// Send `signal` once more after this long. A kube-apiserver whose kine is dead ends only on the second TERM.
    pub repeat_after: Option<Duration>,
}

/// What a running step does when an earlier one dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// Stopped in reverse order before the dead one restarts, started again through its gate after it.
    Restart,
    /// Left running; its gate is checked again once the dead one is ready. Still closed after the time given: restarted.
    RideThrough(Duration),
}

/// What stands in front of a step's start.
#[derive(Clone)]
pub enum Seam {
    /// Nothing: the step before it being ready is enough.
    Open,
    /// The identity guard: runs before every start; a refusal is final.
    Guarded(Arc<dyn Guard>),
}

impl fmt::Debug for Seam {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "Open",
            Self::Guarded(_) => "Guarded",
        })
    }
}

/// What a step is, as far as the chain cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Plain,
    /// The first Kubernetes process of a tenant. It must have a [`Seam::Guarded`] before it.
    Kubernetes,
}

/// One step of a chain. Its gate is part of its [`Blueprint`], so a step without one cannot be written down.
#[derive(Clone)]
pub struct Step {
    pub component: String,
    pub role: Role,
    pub seam: Seam,
    pub blueprint: Arc<dyn Blueprint>,
    pub restart: RestartPolicy,
    pub stop: StopPlan,
    /// From `Prepare` to the gate's opening. Past it the start has failed and counts against the restart intensity.
    pub start_deadline: Duration,
    /// Reactions to the death of an earlier step, by that step's name. Not named: [`Reaction::Restart`].
    pub reactions: BTreeMap<String, Reaction>,
    /// Why this is not the real component, shown wherever a user sees it.
    pub stand_in: Option<String>,
}

impl Step {
    /// What this step does when `earlier` dies. The default is rest_for_one.
    pub fn reaction_to(&self, earlier: &str) -> Reaction {
        self.reactions.get(earlier).copied().unwrap_or(Reaction::Restart)
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Step")
            .field("component", &self.component)
            .field("role", &self.role)
            .field("guarded", &matches!(self.seam, Seam::Guarded(_)))
            .finish_non_exhaustive()
    }
}
