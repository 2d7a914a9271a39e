//! Creates the database cluster, whole or not at all: beside its place first, then renamed.

use super::super::seat::Seat;
use super::super::{defaults, postgres::SUPERUSER};
use crate::fault;
use crate::files;
use crate::process::tool::{self, Tool, ToolError};
use berth_actors::host::PrepareError;
use berth_actors::spec::User;
use std::path::{Path, PathBuf};

/// Called only while `data` does not exist. `maker`: whom it is made as where the owner has no name; then it is made outside of
/// the chain's directory, which is closed to everybody else, and given to the owner before it is moved in.
pub(super) async fn create(
    seat: &Seat,
    bin: &Path,
    data: &Path,
    maker: Option<User>,
) -> Result<(), PrepareError> {
    let aside = if maker.is_some() { outside(&seat.data) } else { data.with_extension("new") };
    let (path, user) = (aside.clone(), maker.or(seat.owner));
    seat.blocking(move || {
        files::remove_tree(&path)?;
        // Made here, with the right owner: the parent directory need not be the component's own.
        files::private_dir(&path, user)
    })
    .await?;
    let initdb = Tool {
        program: bin.join("initdb"),
        args: arguments(&aside),
        env: super::tool_environment(),
        dir: aside.clone(),
        user,
    };
    tool::run(initdb, defaults::INITDB_DEADLINE).await.map_err(|error| match error {
        ToolError::Start { .. } => seat.fatal(error),
        ToolError::TooLate { .. } | ToolError::Failed { .. } => seat.retry(error),
    })?;
    fault::point("initdb-done");
    let (data, owner) = (data.to_owned(), seat.owner);
    seat.blocking(move || {
        if let (Some(maker), Some(owner)) = (maker, owner) {
            files::give_tree(&aside, |uid| uid == maker.uid, owner)?;
            fault::point("initdb-given");
        }
        files::rename(&aside, &data)
    })
    .await
}

/// Where the database cluster of the chain in `seat` is made when that is not in its own directory: on the same file system.
pub(crate) fn outside(seat: &Path) -> PathBuf {
    let name = seat.file_name().unwrap_or_default().to_string_lossy();
    seat.with_file_name(format!(".{name}.initdb"))
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
