//! A [`ProcessSpec`] made into a running child.
//!
//! Called by the host, on a blocking thread. Keeps no records and watches nothing.

use super::birth::{Birth, BirthError, Newborn, Stage};
use super::limits::Limits;
use super::{children, mark};
use berth_actors::host::SpawnError;
use berth_actors::spec::ProcessSpec;
use rustix::fd::{AsFd, BorrowedFd};
use std::fs::File;
use std::io::ErrorKind;

/// How the child is found again when its pid does not suffice.
pub(super) struct Marks<'a> {
    pub(super) token: &'a str,
    pub(super) component: &'a str,
}

/// Starts the child with `log` as its output: it holds the file itself, so the daemon's death breaks no pipe.
pub(super) fn start(
    spec: &ProcessSpec,
    log: &File,
    cgroup: Option<BorrowedFd<'_>>,
    limits: Limits,
    marks: &Marks<'_>,
) -> Result<Newborn, SpawnError> {
    let failed = |error: BirthError| classify(spec, &error);
    let null =
        crate::files::trusted::open("/dev/null").map_err(|error| failed(Stage::Prepare.failed(error)))?;
    let name = spec.arg0.as_ref().map_or_else(|| spec.program.as_os_str().to_owned(), Into::into);
    let own_marks = [(mark::TOKEN, marks.token), (mark::COMPONENT, marks.component)];
    let environment =
        spec.env.iter().chain(&spec.start_env).map(|(name, value)| (name.as_str(), value.as_str()));
    children::bear(&Birth {
        program: &spec.program,
        arguments: [name].into_iter().chain(spec.args.iter().map(Into::into)).collect(),
        environment: environment.chain(own_marks).map(|(name, value)| Birth::variable(name, value)).collect(),
        dir: &spec.dir,
        stdin: null.as_fd(),
        stdout: log.as_fd(),
        stderr: log.as_fd(),
        cgroup,
        user: spec.user,
        open_files: limits.open_files,
        core_size: limits.core_size,
        passed: spec.ready.as_ref().map(|passed| (passed.file.as_fd(), passed.number)),
        dies_with_thread: false,
    })
    .map_err(failed)
}

fn classify(spec: &ProcessSpec, error: &BirthError) -> SpawnError {
    let program = spec.program.display();
    let who = spec.user.map_or_else(String::new, |user| format!(" as uid {}", user.uid));
    let dir = spec.dir.display();
    let kind = error.source.kind();
    let is_permanent = matches!(
        kind,
        ErrorKind::NotFound
            | ErrorKind::PermissionDenied
            | ErrorKind::NotADirectory
            | ErrorKind::InvalidInput
    ) || error.source.raw_os_error() == Some(libc::ENOEXEC);
    let what = match (error.stage, kind) {
        (Stage::Directory, _) => {
            format!("cannot start {program}{who}: working directory {dir}: {}", error.source)
        }
        (Stage::Execute, ErrorKind::NotFound) => {
            format!("{program} does not exist, or the interpreter it names does not")
        }
        (Stage::Execute, ErrorKind::PermissionDenied) => {
            format!("{program} may not be executed{who}: check its mode and that of every directory above it")
        }
        _ => format!("cannot start {program}{who}: {error}"),
    };
    // The rest passes: pids, memory, descriptors, or a program file that is still open for writing.
    if is_permanent { SpawnError::Fatal(what) } else { SpawnError::Retry(what) }
}
