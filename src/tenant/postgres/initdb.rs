//! Creates the database cluster, whole or not at all: beside its place first, then renamed.

use super::super::seat::Seat;
use super::super::{defaults, postgres::SUPERUSER};
use crate::fault;
use crate::files::{self, FileError};
use crate::process::tool::{self, Tool, ToolError};
use berth_actors::host::PrepareError;
use std::io::ErrorKind;
use std::path::Path;

/// Called only while `data` does not exist.
pub(super) async fn create(seat: &Seat, bin: &Path, data: &Path) -> Result<(), PrepareError> {
    let aside = data.with_extension("new");
    let (path, owner) = (aside.clone(), seat.owner);
    seat.blocking(move || {
        match std::fs::remove_dir_all(&path) {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                return Err(FileError { action: "remove", path, source });
            }
            _ => {}
        }
        // Made here, with the right owner: the parent directory need not be the component's own.
        files::private_dir(&path, owner)
    })
    .await?;
    let initdb = Tool {
        program: bin.join("initdb"),
        args: arguments(&aside),
        env: super::tool_environment(),
        dir: seat.data.clone(),
        user: seat.owner,
    };
    tool::run(initdb, defaults::INITDB_DEADLINE).await.map_err(|error| match error {
        ToolError::Start { .. } => seat.fatal(error),
        ToolError::TooLate { .. } | ToolError::Failed { .. } => seat.retry(error),
    })?;
    fault::point("initdb-done");
    let data = data.to_owned();
    seat.blocking(move || {
        let failed = |source| FileError { action: "rename onto", path: data.clone(), source };
        std::fs::rename(&aside, &data).map_err(failed)?;
        files::sync_dir(data.parent().unwrap_or(Path::new("/")))
    })
    .await
}

/// One syncfs at the end instead of a sync for each of a thousand files.
fn arguments(dir: &Path) -> Vec<String> {
    let mut args =
        vec!["-D".to_owned(), dir.to_string_lossy().into_owned(), "-U".to_owned(), SUPERUSER.to_owned()];
    let rest = [
        "--encoding=UTF8",
        "--locale=C",
        "--auth-local=peer",
        "--auth-host=reject",
        "--sync-method=syncfs",
        "--no-instructions",
    ];
    args.extend(rest.map(str::to_owned));
    args
}
