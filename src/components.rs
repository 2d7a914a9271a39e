//! The programs the chains run, as resolved paths: from the asset store, or the operator's own files.

use std::path::{Path, PathBuf};

/// An executable and how it wants to be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub path: PathBuf,
    /// `argv[0]` when the file answers to several names.
    pub arg0: Option<String>,
    /// Set when this is not the real component: the reason, shown wherever a user sees the component.
    pub stand_in: Option<String>,
}

impl Program {
    pub fn real(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), arg0: None, stand_in: None }
    }
}

/// Everything a daemon needs to run kcp and tenants.
#[derive(Debug, Clone)]
pub struct Components {
    /// `bin/` of a PostgreSQL installation: initdb and postgres are taken from it.
    pub postgres_bin: PathBuf,
    pub openbao: Program,
    pub kine: Program,
    pub kube_apiserver: Program,
    pub kube_controller_manager: Program,
    /// Where there is one, new tenants run it instead of the two above.
    pub k3s: Option<Program>,
    pub kcp: Program,
    pub ccm: Program,
}

impl Components {
    /// Of every program, and PostgreSQL's directory.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        let programs = [
            &self.openbao,
            &self.kine,
            &self.kube_apiserver,
            &self.kube_controller_manager,
            &self.kcp,
            &self.ccm,
        ];
        let programs = programs.into_iter().chain(&self.k3s).map(|program| program.path.as_path());
        std::iter::once(self.postgres_bin.as_path()).chain(programs)
    }
}
