//! Runs a package client or a compiler to its end: output to a log, its last words into the error, all of it killed when
//! the caller gives up. Only for short-lived tools of provisioning; a component is born through `process`.

use super::record::at;
use super::store::StoreError;
use crate::files;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    #[error("{tool} is not installed (it is needed to {purpose}): {install}")]
    Missing { tool: &'static str, purpose: String, install: &'static str },
    #[error("could not {purpose}: {cause} ({status}); the whole output is in {log}")]
    Failed { purpose: String, cause: String, status: ExitStatus, log: PathBuf },
    #[error("could not {purpose} within {} minutes; its output is in {log}", .deadline.as_secs() / 60)]
    Deadline { purpose: String, deadline: Duration, log: PathBuf },
    #[error("could not run {tool}: {source}")]
    Run { tool: &'static str, source: io::Error },
    #[error(transparent)]
    Place(#[from] StoreError),
}

/// One run of a tool, in words for the operator.
#[derive(Debug)]
pub(super) struct Tool<'a> {
    pub name: &'static str,
    /// Continues "could not ...".
    pub purpose: String,
    /// How to get it, when it is not there.
    pub install: &'static str,
    /// Emptied first.
    pub log: &'a Path,
    pub deadline: Duration,
}

/// Runs `command` to its end and hands each line of its output to `line`. Dropping the future kills the tool and its children.
pub(super) async fn run(
    tool: Tool<'_>,
    mut command: Command,
    mut line: impl FnMut(&str) + Send,
) -> Result<(), ToolError> {
    let failed = |source| ToolError::Run { tool: tool.name, source };
    files::write_atomic(tool.log, b"", None).map_err(StoreError::of)?;
    let mut log = tokio::fs::File::from_std(files::open_log(tool.log, None).map_err(StoreError::of)?);
    let (reader, writer) = io::pipe().map_err(failed)?;
    command.stdin(Stdio::null()).stdout(writer.try_clone().map_err(failed)?).stderr(writer);
    // A group of its own, so that giving up reaches the compilers it started, and a Ctrl-C reaches only berth.
    command.process_group(0).kill_on_drop(true);
    let child = command.spawn().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => {
            ToolError::Missing { tool: tool.name, purpose: tool.purpose.clone(), install: tool.install }
        }
        _ => failed(source),
    })?;
    // The command holds the writing end: without this the output never ends.
    drop(command);
    let mut group = Group { child };
    let unlogged = |error| ToolError::Place(StoreError::of(at("write the log", tool.log)(error)));
    let finish = async {
        let output = pipe::Receiver::from_owned_fd(reader.into()).map_err(failed)?;
        let mut lines = BufReader::new(output).lines();
        let mut cause = Cause::default();
        while let Some(text) = lines.next_line().await.map_err(failed)? {
            log.write_all(format!("{text}\n").as_bytes()).await.map_err(unlogged)?;
            cause.see(&text);
            line(&text);
        }
        log.flush().await.map_err(unlogged)?;
        let status = group.child.wait().await.map_err(failed)?;
        Ok::<_, ToolError>((status, cause))
    };
    match tokio::time::timeout(tool.deadline, finish).await {
        Err(_) => Err(ToolError::Deadline {
            purpose: tool.purpose,
            deadline: tool.deadline,
            log: tool.log.to_owned(),
        }),
        Ok(Err(error)) => Err(error),
        Ok(Ok((status, _))) if status.success() => Ok(()),
        Ok(Ok((status, cause))) => Err(ToolError::Failed {
            purpose: tool.purpose,
            cause: cause.say(),
            status,
            log: tool.log.to_owned(),
        }),
    }
}

/// Kills the whole group of a tool that is given up.
struct Group {
    child: Child,
}

impl Drop for Group {
    fn drop(&mut self) {
        // An id is only there while the child is not reaped, so the number cannot belong to another process.
        let leader = self.child.id().and_then(|pid| i32::try_from(pid).ok());
        if let Some(leader) = leader.and_then(rustix::process::Pid::from_raw) {
            // Fails only when the group is gone, which is what is wanted.
            let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
        }
    }
}

/// The line of an output that says best why a tool failed: a full disk, else its last error, else its last line.
#[derive(Debug, Default)]
struct Cause {
    full: Option<String>,
    error: Option<String>,
    last: Option<String>,
}

impl Cause {
    fn see(&mut self, line: &str) {
        let line = line.trim();
        if line.is_empty() {
            return;
        }
        let lower = line.to_lowercase();
        if lower.contains("no space left on device") {
            self.full.get_or_insert_with(|| line.to_owned());
        } else if lower.starts_with("error") {
            self.error = Some(line.to_owned());
        }
        self.last = Some(line.to_owned());
    }

    fn say(self) -> String {
        let mut said = self.full.or(self.error).or(self.last).unwrap_or_else(|| "it said nothing".to_owned());
        if said.chars().count() > LONGEST_CAUSE {
            said = said.chars().take(LONGEST_CAUSE).collect();
            let _ = write!(said, "…");
        }
        said
    }
}

/// Characters of a tool's own words in an error: enough for a URL and its reason, still one line.
const LONGEST_CAUSE: usize = 300;

#[cfg(test)]
mod tests {
    use super::*;

    fn tool<'a>(name: &'static str, log: &'a Path) -> Tool<'a> {
        let deadline = Duration::from_mins(1);
        Tool { name, purpose: "build kine".into(), install: "install Go", log, deadline }
    }

    #[tokio::test]
    async fn a_failure_names_its_own_words_and_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("kine.log");
        let mut command = Command::new("sh");
        command.args(["-c", "echo one; echo 'ERROR: no such module' >&2; echo three; exit 3"]);
        let mut seen = Vec::new();
        let error = run(tool("sh", &log), command, |line| seen.push(line.to_owned())).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("ERROR: no such module") && text.contains("kine.log"), "{text}");
        assert_eq!(seen.len(), 3);
        assert_eq!(std::fs::read_to_string(&log).unwrap().lines().count(), 3);
    }

    #[tokio::test]
    async fn a_missing_tool_says_how_to_get_it() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("kine.log");
        let error = run(tool("go", &log), Command::new("/nowhere/go"), |_| {}).await.unwrap_err().to_string();
        assert_eq!(error, "go is not installed (it is needed to build kine): install Go");
    }

    #[tokio::test]
    async fn giving_up_kills_the_tools_children_too() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & echo $!; wait"]);
        let (said, mut says) = tokio::sync::mpsc::unbounded_channel();
        let running = tokio::spawn(async move {
            run(tool("sh", &log), command, move |line| drop(said.send(line.to_owned()))).await
        });
        let grandchild =
            says.recv().await.unwrap().parse().ok().and_then(rustix::process::Pid::from_raw).unwrap();
        let pidfd = rustix::process::pidfd_open(grandchild, rustix::process::PidfdFlags::empty()).unwrap();
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        let mut ended = [rustix::event::PollFd::new(&pidfd, rustix::event::PollFlags::IN)];
        let deadline = rustix::event::Timespec { tv_sec: 30, tv_nsec: 0 };
        // The dying children's SIGCHLD interrupts.
        let polled = rustix::io::retry_on_intr(|| rustix::event::poll(&mut ended, Some(&deadline)));
        assert_eq!(polled, Ok(1));
    }
}
