//! Short programs that prepare something and end: initdb, a version query.
//!
//! Blueprints call [`run`] while they prepare a component; a backup has the database's copy [`run_into`] a pipe. A tool has a deadline, no log file and no ledger record; it dies
//! with the daemon.

use super::birth::{Birth, BirthError, Stage};
use super::reap::timespec;
use super::{children, identity, life};
use crate::off_thread::off_thread;
use berth_actors::host::ExitStatus;
use berth_actors::spec::User;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, WaitIdOptions, kill_process_group};
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

/// Lines of output in an error: enough to see what initdb choked on.
const ERROR_LINES: usize = 5;
/// A tool is asked for a line or a page; more is cut at its beginning.
const MOST_OUTPUT: u64 = 1024 * 1024;

/// What to run. Nothing of the environment is inherited.
#[derive(Clone, Default)]
pub struct Tool {
    pub program: PathBuf,
    /// Never a secret: `/proc/<pid>/cmdline` is world-readable.
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub dir: PathBuf,
    pub user: Option<User>,
}

impl fmt::Debug for Tool {
    /// Names the environment's keys, never its values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tool")
            .field("program", &self.program)
            .field("args", &self.args)
            .field("env", &self.env.keys().collect::<Vec<_>>())
            .field("dir", &self.dir)
            .field("user", &self.user)
            .finish()
    }
}

/// What a tool that ended with exit code 0 wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    pub stdout: String,
    pub stderr: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("cannot run {program} in {dir}: {reason}", program = .program.display(), dir = .dir.display())]
    Start { program: PathBuf, dir: PathBuf, reason: String },
    #[error("{program}: {status}; its last words: {words}", program = .program.display())]
    Failed { program: PathBuf, status: ExitStatus, words: String },
    #[error("{program}: not done after {}s, killed; its last words: {words}", .after.as_secs(), program = .program.display())]
    TooLate { program: PathBuf, after: Duration, words: String },
}

/// Runs `tool` to its end. It is killed with all its children after `deadline`, or when the future is dropped.
pub async fn run(tool: Tool, deadline: Duration) -> Result<ToolOutput, ToolError> {
    begin(tool, deadline, None).await
}

/// The same for output of any size: standard output goes to `stdout`, of which no other copy may be open once this
/// resolves, or whoever reads it waits for its end in vain.
pub async fn run_into(tool: Tool, deadline: Duration, stdout: OwnedFd) -> Result<(), ToolError> {
    begin(tool, deadline, Some(stdout.into())).await.map(drop)
}

async fn begin(tool: Tool, deadline: Duration, into: Option<File>) -> Result<ToolOutput, ToolError> {
    // Closed by whatever drops this future, which the thread that waits for the tool then sees.
    let (caller_left, _caller) = pipe_with(PipeFlags::CLOEXEC).map_err(|error| ToolError::Start {
        program: tool.program.clone(),
        dir: tool.dir.clone(),
        reason: error.to_string(),
    })?;
    off_thread(move || run_blocking(&tool, deadline, &caller_left, into)).await
}

/// One thread from birth to burial: the tool is told to die with the thread that spawned it.
fn run_blocking(
    tool: &Tool,
    deadline: Duration,
    caller_left: &OwnedFd,
    into: Option<File>,
) -> Result<ToolOutput, ToolError> {
    let (program, dir) = (|| tool.program.clone(), || tool.dir.clone());
    let failed =
        |error: BirthError| ToolError::Start { program: program(), dir: dir(), reason: error.to_string() };
    let (stdout, stderr) = (memory("stdout").map_err(failed)?, memory("stderr").map_err(failed)?);
    let status =
        live(tool, deadline, caller_left, into.as_ref().unwrap_or(&stdout), &stderr).map_err(failed)?;
    drop(into);
    let (stdout, stderr) = (read(&stdout), read(&stderr));
    let words = || last_lines(if stderr.trim().is_empty() { &stdout } else { &stderr });
    match status {
        Some(ExitStatus::Code(0)) => Ok(ToolOutput { stdout, stderr }),
        Some(status) => Err(ToolError::Failed { program: program(), status, words: words() }),
        None => Err(ToolError::TooLate { program: program(), after: deadline, words: words() }),
    }
}

/// `None` when it had to be killed.
fn live(
    tool: &Tool,
    deadline: Duration,
    caller_left: &OwnedFd,
    stdout: &File,
    stderr: &File,
) -> Result<Option<ExitStatus>, BirthError> {
    let null = crate::files::trusted::open("/dev/null").map_err(|error| Stage::Prepare.failed(error))?;
    let arguments = [tool.program.as_os_str().to_owned()].into_iter();
    let newborn = children::bear(&Birth {
        program: &tool.program,
        arguments: arguments.chain(tool.args.iter().map(Into::into)).collect(),
        environment: tool.env.iter().map(|(name, value)| Birth::variable(name, value)).collect(),
        dir: &tool.dir,
        stdin: null.as_fd(),
        stdout: stdout.as_fd(),
        stderr: stderr.as_fd(),
        cgroup: None,
        user: tool.user,
        open_files: None,
        core_size: Some(0),
        passed: None,
        dies_with_thread: true,
    })?;
    let ended = life::ended_before(&newborn.pidfd, timespec(deadline), Some(caller_left));
    // The group before the leader is waited for: until then nobody else can have its number.
    if let Some(group) = identity::raw_pid(newborn.pid) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    // Ended, or just killed: either way there is nothing to wait for but the kernel.
    let status = children::forget(newborn.pid, || life::exit_status(&newborn.pidfd, WaitIdOptions::EXITED));
    Ok(status.filter(|_| ended))
}

/// Output goes to memory, not to a pipe: a tool that leaves a child behind would hold the pipe open.
fn memory(name: &str) -> Result<File, BirthError> {
    memfd_create(name, MemfdFlags::CLOEXEC).map(File::from).map_err(|error| Stage::Prepare.failed(error))
}

fn read(output: &File) -> String {
    let length = output.metadata().map_or(0, |metadata| metadata.len());
    let kept = length.min(MOST_OUTPUT);
    let mut bytes = vec![0; usize::try_from(kept).unwrap_or_default()];
    match output.read_exact_at(&mut bytes, length - kept) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("(output unreadable: {error})"),
    }
}

fn last_lines(output: &str) -> String {
    let lines: Vec<&str> = output.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if lines.is_empty() {
        return "(none)".to_owned();
    }
    lines[lines.len().saturating_sub(ERROR_LINES)..].join(" | ")
}
