//! What a child is born with, and how a birth fails.
//!
//! The spawner and tools fill in a [`Birth`]; [`super::raw`] carries it out.

use berth_actors::spec::User;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::Path;

/// Everything that is decided before the fork. The child gets a session of its own, umask 077, no way to gain privileges, no
/// capability unless it is root's, and nothing of the daemon's environment, signal mask or files.
pub(super) struct Birth<'a> {
    pub(super) program: &'a Path,
    /// From `argv[0]` on.
    pub(super) arguments: Vec<OsString>,
    /// `NAME=value`.
    pub(super) environment: Vec<OsString>,
    pub(super) dir: &'a Path,
    pub(super) stdin: BorrowedFd<'a>,
    pub(super) stdout: BorrowedFd<'a>,
    pub(super) stderr: BorrowedFd<'a>,
    /// The directory of the cgroup to be born in. Where the kernel refuses it, the child is born outside.
    pub(super) cgroup: Option<BorrowedFd<'a>>,
    pub(super) user: Option<User>,
    /// How many files it may have open.
    pub(super) open_files: Option<u64>,
    /// Bytes of a core dump.
    pub(super) core_size: Option<u64>,
    /// An open file beside the standard three, and its number in the child.
    pub(super) passed: Option<(BorrowedFd<'a>, i32)>,
    /// SIGKILL when the thread that bore it ends. Only for a child whose thread waits for it.
    pub(super) dies_with_thread: bool,
}

impl fmt::Debug for Birth<'_> {
    /// The environment holds secrets: only how much of it there is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Birth")
            .field("program", &self.program)
            .field("arguments", &self.arguments)
            .field("environment", &self.environment.len())
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Birth<'_> {
    pub(super) fn variable(name: &str, value: &str) -> OsString {
        format!("{name}={value}").into()
    }
}

/// A child that executes its program.
#[derive(Debug)]
pub(super) struct Newborn {
    pub(super) pid: u32,
    pub(super) pidfd: OwnedFd,
    /// Whether it was born in the cgroup that was asked for.
    pub(super) in_cgroup: bool,
}

/// How far a child got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Prepare,
    Fork,
    Setup,
    Directory,
    User,
    Execute,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Prepare => "prepare the start",
            Self::Fork => "create a process",
            Self::Setup => "set up the process",
            Self::Directory => "enter the working directory",
            Self::User => "change the user",
            Self::Execute => "execute the program",
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot {stage}: {source}")]
pub(super) struct BirthError {
    pub(super) stage: Stage,
    pub(super) source: io::Error,
}

impl Stage {
    pub(super) fn failed(self, source: impl Into<io::Error>) -> BirthError {
        BirthError { stage: self, source: source.into() }
    }
}
