//! Components that are built here from a pinned Go module: `go install` in a copy of the embedded go.mod and go.sum.

use super::catalogue::{self, GoPins};
use super::progress::{Advance, Progress};
use super::store::{Staged, StoreError};
use super::tool::{self, Tool, ToolError};
use crate::files;
use std::path::Path;
use std::time::Duration;
use tokio::process::Command;

/// kube-apiserver takes 3 minutes on two good cores from nothing; a small machine may need ten times that.
const BUILD_DEADLINE: Duration = Duration::from_mins(45);

/// Asking a toolchain for its version; it may first fetch the one go.mod wants.
const VERSION_DEADLINE: Duration = Duration::from_mins(5);

const GO: &str = "install Go 1.21 or newer, which fetches the toolchain it needs (Debian, Ubuntu: golang-go; \
                  Fedora: golang; Alpine: go), or name the operator's own file (see --help)";

/// One pinned Go program.
#[derive(Debug, Clone)]
pub(super) struct GoProgram<'a> {
    pub component: &'a str,
    pub version: &'a str,
    pub import_path: &'a str,
    pub pins: GoPins,
}

impl GoProgram<'_> {
    pub(super) fn key(&self) -> String {
        catalogue::key(&[self.component, self.import_path, self.pins.module, self.pins.sums])
    }

    /// Builds the program into the staged tree; answers with the toolchain's version.
    pub(super) async fn build(
        &self,
        staged: &Staged,
        log: &Path,
        progress: &dyn Progress,
    ) -> Result<String, ToolError> {
        let module = staged.dir.path().join("module");
        files::private_dir(&module, None).map_err(StoreError::of)?;
        for (name, text) in [("go.mod", self.pins.module), ("go.sum", self.pins.sums)] {
            files::write_atomic(&module.join(name), text.as_bytes(), None).map_err(StoreError::of)?;
        }

        let purpose = format!("build {} {}", self.component, self.version);
        let tool = |deadline| Tool { name: "go", purpose: purpose.clone(), install: GO, log, deadline };
        let mut toolchain = String::new();
        let mut ask = go(&module, staged);
        ask.args(["env", "GOVERSION"]);
        tool::run(tool(VERSION_DEADLINE), ask, |line| line.trim().clone_into(&mut toolchain)).await?;

        let mut install = go(&module, staged);
        // readonly: go.sum is the pin, so a build that would add to it must fail.
        install.args(["install", "-v", "-mod=readonly", "-modcacherw", self.import_path]);
        let mut lines = 0_u64;
        tool::run(tool(BUILD_DEADLINE), install, |line| {
            lines += 1;
            progress.advanced(self.component, Advance::Note(note(lines, line)));
        })
        .await?;
        Ok(toolchain)
    }
}

/// The go command in the module's directory, with everything it writes inside the staging directory.
fn go(module: &Path, staged: &Staged) -> Command {
    let mut command = Command::new("go");
    command
        .current_dir(module)
        .env("GOBIN", &staged.tree)
        .env("CGO_ENABLED", "0")
        // An enclosing workspace must not change what is built.
        .env("GOWORK", "off")
        // What a killed build leaves goes away with the staging directory.
        .env("GOTMPDIR", staged.dir.path());
    if std::env::var_os("HOME").is_none() {
        // A system service has no home for Go's caches; without this the build refuses to start.
        command.env("HOME", staged.dir.path());
    }
    command
}

/// `go install -v` prints a package per line as it compiles, and what it downloads before that.
fn note(lines: u64, line: &str) -> String {
    match line.strip_prefix("go: ") {
        Some(rest) => rest.to_owned(),
        None => format!("{lines} packages compiled, now {line}"),
    }
}
