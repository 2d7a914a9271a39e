//! Runs a short-lived tool (initdb) to its end: a clean environment, another account where asked, a deadline.

use super::seat::PATH;
use berth_actors::spec::User;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

#[derive(Debug, thiserror::Error)]
pub(super) enum ToolError {
    #[error("cannot run {program}: {source}")]
    Spawn { program: PathBuf, source: std::io::Error },
    #[error("{program} did not end within {} s", .deadline.as_secs())]
    Deadline { program: PathBuf, deadline: Duration },
    #[error("{program} failed ({status}): {message}")]
    Failed { program: PathBuf, status: std::process::ExitStatus, message: String },
}

/// Killed when dropped or at the deadline. The error holds the tool's last lines of standard error.
pub(super) async fn run(
    program: &Path,
    args: &[String],
    user: Option<User>,
    dir: &Path,
    deadline: Duration,
) -> Result<(), ToolError> {
    let mut command = Command::new(program);
    command
        .args(args)
        .env_clear()
        .env("PATH", PATH)
        .env("TZ", "UTC")
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    if let Some(user) = user {
        command.uid(user.uid).gid(user.gid);
    }
    let program = || program.to_owned();
    let output = tokio::time::timeout(deadline, command.output())
        .await
        .map_err(|_| ToolError::Deadline { program: program(), deadline })?
        .map_err(|source| ToolError::Spawn { program: program(), source })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let mut last: Vec<&str> = text.lines().rev().filter(|line| !line.trim().is_empty()).take(3).collect();
    last.reverse();
    Err(ToolError::Failed { program: program(), status: output.status, message: last.join("; ") })
}
