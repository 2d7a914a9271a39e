//! Files the operator names instead of what Berth would provision: checked before anything starts, never copied or changed.

use super::itself::CLOUD_CONTROLLER_MANAGER;
use rustix::fs::{Access, access};
use std::io;
use std::path::{Path, PathBuf};

/// The operator's own components. Each is used as it is; its version is not checked.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Components")]
pub struct Overrides {
    /// A directory with any of postgres/bin/, bao, kine, kube-apiserver, kube-controller-manager, kcp, k3s to use
    #[arg(long, value_name = "DIR", env = "BERTH_COMPONENTS_DIR")]
    pub components_dir: Option<PathBuf>,
    /// The bin directory of a PostgreSQL installation, with postgres and initdb
    #[arg(long, value_name = "DIR")]
    pub postgres: Option<PathBuf>,
    /// The OpenBao program
    #[arg(long, value_name = "PATH")]
    pub openbao: Option<PathBuf>,
    #[arg(long, value_name = "PATH", help = "The kine program")]
    pub kine: Option<PathBuf>,
    #[arg(long, value_name = "PATH", help = "The kube-apiserver program")]
    pub kube_apiserver: Option<PathBuf>,
    #[arg(long, value_name = "PATH", help = "The kube-controller-manager program")]
    pub kube_controller_manager: Option<PathBuf>,
    #[arg(long, value_name = "PATH", help = "The kcp program; without it a stand-in runs")]
    pub kcp: Option<PathBuf>,
    #[arg(
        long,
        value_name = "PATH",
        help = "The k3s program; new clusters run it instead of kube-apiserver"
    )]
    pub k3s: Option<PathBuf>,
    #[arg(long, value_name = "PATH", help = "The cloud controller manager; without it, Berth's own")]
    pub ccm: Option<PathBuf>,
}

/// A named file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{flag} {path}: {reason}")]
pub struct OverrideError {
    flag: String,
    path: PathBuf,
    reason: String,
}

impl Overrides {
    /// The operator's program for `component`, checked; `None` where nothing was named. Blocking.
    pub fn program(&self, component: &str) -> Result<Option<PathBuf>, OverrideError> {
        let (flag, named, in_dir) = match component {
            "postgres" => return self.postgres_bin(),
            "openbao" => ("--openbao", &self.openbao, "bao"),
            "kine" => ("--kine", &self.kine, "kine"),
            "kube-apiserver" => ("--kube-apiserver", &self.kube_apiserver, "kube-apiserver"),
            "kube-controller-manager" => {
                ("--kube-controller-manager", &self.kube_controller_manager, "kube-controller-manager")
            }
            "kcp" => ("--kcp", &self.kcp, "kcp"),
            "k3s" => ("--k3s", &self.k3s, "k3s"),
            "ccm" => ("--ccm", &self.ccm, CLOUD_CONTROLLER_MANAGER),
            _ => return Ok(None),
        };
        match named {
            Some(path) => executable(flag, path).map(Some),
            None => self.in_dir(in_dir)?.map(|path| executable("--components-dir", &path)).transpose(),
        }
    }

    fn postgres_bin(&self) -> Result<Option<PathBuf>, OverrideError> {
        let (flag, dir) = match &self.postgres {
            Some(dir) => ("--postgres", dir.clone()),
            None => match self.in_dir("postgres/bin")? {
                Some(dir) => ("--components-dir", dir),
                None => return Ok(None),
            },
        };
        for program in ["postgres", "initdb"] {
            executable(flag, &dir.join(program))?;
        }
        absolute(flag, &dir).map(Some)
    }

    fn in_dir(&self, name: &str) -> Result<Option<PathBuf>, OverrideError> {
        let Some(dir) = &self.components_dir else { return Ok(None) };
        if !dir.is_dir() {
            return Err(refuse("--components-dir", dir, "is not a directory"));
        }
        // A dangling link is named in an error, not passed over.
        let path = dir.join(name);
        Ok(path.symlink_metadata().is_ok().then_some(path))
    }
}

fn executable(flag: &str, path: &Path) -> Result<PathBuf, OverrideError> {
    let meta = path.metadata().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => refuse(flag, path, "there is no such file"),
        _ => refuse(flag, path, &error.to_string()),
    })?;
    if !meta.is_file() {
        return Err(refuse(flag, path, "is not a regular file"));
    }
    match access(path, Access::EXEC_OK) {
        Ok(()) => absolute(flag, path),
        Err(_) => Err(refuse(flag, path, "is not executable; chmod +x it, or name another file")),
    }
}

/// Components run in directories of their own, so a relative path would lead elsewhere.
fn absolute(flag: &str, path: &Path) -> Result<PathBuf, OverrideError> {
    std::path::absolute(path).map_err(|error| refuse(flag, path, &error.to_string()))
}

fn refuse(flag: &str, path: &Path, reason: &str) -> OverrideError {
    OverrideError { flag: flag.to_owned(), path: path.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assets::record::set_mode;
    use crate::files;

    fn program(dir: &Path, name: &str, mode: u32) -> PathBuf {
        let path = dir.join(name);
        files::write_atomic(&path, b"#!/bin/sh\n", None).unwrap();
        set_mode(&path, mode).unwrap();
        path
    }

    #[test]
    fn a_file_that_cannot_be_run_is_refused_with_its_flag_and_path() {
        let dir = tempfile::tempdir().unwrap();
        let flat = program(dir.path(), "kcp", 0o644);
        for (path, reason) in [
            (flat, "is not executable"),
            (dir.path().join("none"), "no such file"),
            (dir.path().to_owned(), "is not a regular file"),
        ] {
            let overrides = Overrides { kcp: Some(path.clone()), ..Overrides::default() };
            let text = overrides.program("kcp").unwrap_err().to_string();
            assert!(text.starts_with(&format!("--kcp {}: ", path.display())), "{text}");
            assert!(text.contains(reason), "{text}");
        }
    }

    #[test]
    fn a_components_directory_gives_what_it_holds_and_a_named_file_wins_over_it() {
        let dir = tempfile::tempdir().unwrap();
        let kine = program(dir.path(), "kine", 0o755);
        let other = program(dir.path(), "other", 0o755);
        let mut overrides = Overrides { components_dir: Some(dir.path().to_owned()), ..Overrides::default() };
        assert_eq!(overrides.program("kine").unwrap(), Some(kine));
        assert_eq!(overrides.program("openbao").unwrap(), None);
        overrides.kine = Some(other.clone());
        assert_eq!(overrides.program("kine").unwrap(), Some(other));
    }

    #[test]
    fn a_postgres_directory_without_initdb_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        program(dir.path(), "postgres", 0o755);
        let overrides = Overrides { postgres: Some(dir.path().to_owned()), ..Overrides::default() };
        let text = overrides.program("postgres").unwrap_err().to_string();
        assert!(text.contains("--postgres") && text.contains("initdb: there is no such file"), "{text}");
    }
}
