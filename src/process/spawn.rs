//! A [`ProcessSpec`] made into a running child.
//!
//! Called by the host, on a blocking thread. Keeps no records and watches nothing.

use super::cgroup::Cgroup;
use super::raw::{self, Birth};
use super::{children, mark};
use berth_actors::host::SpawnError;
use berth_actors::spec::ProcessSpec;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

/// How the child is found again when its pid does not suffice.
pub(super) struct Marks<'a> {
    pub(super) token: &'a str,
    pub(super) component: &'a str,
}

/// Starts the child with `log` as its output: it holds the file itself, so the daemon's death breaks no pipe.
pub(super) fn start(
    spec: &ProcessSpec,
    log: &File,
    cgroup: Option<&Cgroup>,
    marks: &Marks<'_>,
) -> Result<Child, SpawnError> {
    check_dir(spec)?;
    let output = || log.try_clone().map(Stdio::from).map_err(|error| short_of(spec, &error));
    let mut command = Command::new(&spec.program);
    command
        .args(&spec.args)
        .env_clear()
        .envs(&spec.env)
        .env(mark::TOKEN, marks.token)
        .env(mark::COMPONENT, marks.component)
        .current_dir(&spec.dir)
        .stdin(Stdio::null())
        .stdout(output()?)
        .stderr(output()?);
    if let Some(arg0) = &spec.arg0 {
        command.arg0(arg0);
    }
    let entrance = cgroup.and_then(|cgroup| cgroup.entrance().ok());
    raw::arm(&mut command, Birth { cgroup: entrance, user: spec.user, dies_with_parent: false });
    children::bear(&mut command).map_err(|error| classify(spec, &error))
}

/// Before the fork: the error of a failed chdir in the child would read like a missing program.
fn check_dir(spec: &ProcessSpec) -> Result<(), SpawnError> {
    match fs::metadata(&spec.dir) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(SpawnError::Fatal(format!("{} is not a directory", spec.dir.display()))),
        Err(error) => Err(SpawnError::Fatal(format!("working directory {}: {error}", spec.dir.display()))),
    }
}

/// pids, memory, descriptors, or a program file that is still open for writing: all pass.
fn short_of(spec: &ProcessSpec, error: &io::Error) -> SpawnError {
    SpawnError::Retry(format!("cannot start {}: {error}", spec.program.display()))
}

fn classify(spec: &ProcessSpec, error: &io::Error) -> SpawnError {
    let program = spec.program.display();
    let execution_format = rustix::io::Errno::NOEXEC.raw_os_error();
    match error.kind() {
        ErrorKind::NotFound => {
            SpawnError::Fatal(format!("{program} does not exist, or the interpreter it names does not"))
        }
        ErrorKind::PermissionDenied => {
            let who = spec.user.map_or_else(String::new, |user| format!(" as uid {}", user.uid));
            SpawnError::Fatal(format!(
                "{program} may not be executed{who}: check its mode and that of every directory above it"
            ))
        }
        _ if error.raw_os_error() == Some(execution_format) => {
            SpawnError::Fatal(format!("{program} is no executable for this machine"))
        }
        _ => short_of(spec, error),
    }
}
