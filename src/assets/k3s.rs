//! The operator's k3s, asked what it is before any cluster relies on it. Called while provisioning; starts no server.

use crate::components::Program;
use crate::process::tool::{self, Tool, ToolError};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// It only prints a line; a release binary is 70 MB to read first.
const ANSWER: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub enum K3sError {
    #[error("--k3s {path}: it does not answer `--version`: {source}", path = .path.display())]
    Silent { path: PathBuf, source: ToolError },
    #[error("--k3s {path}: this is no k3s; `--version` says {said:?}", path = .path.display())]
    Another { path: PathBuf, said: String },
}

/// A stand-in says so in its version, under whatever name its file goes. Cancel-safe: the program is killed.
pub(super) async fn ask(path: &Path) -> Result<Program, K3sError> {
    let tool = Tool {
        program: path.to_owned(),
        args: vec!["--version".to_owned()],
        env: BTreeMap::new(),
        dir: PathBuf::from("/"),
        user: None,
    };
    let answer =
        tool::run(tool, ANSWER).await.map_err(|source| K3sError::Silent { path: path.to_owned(), source })?;
    judge(path, answer.stdout.lines().next().unwrap_or_default())
}

fn judge(path: &Path, said: &str) -> Result<Program, K3sError> {
    if !said.starts_with("k3s") {
        return Err(K3sError::Another { path: path.to_owned(), said: said.to_owned() });
    }
    let stand_in =
        said.contains("stand-in").then(|| format!("it says {said:?}; give --k3s PATH of the real one"));
    Ok(Program { stand_in, ..Program::real(path) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_stand_in_cannot_be_mistaken_for_the_real_thing_and_something_else_is_refused() {
        let of = |said| judge(Path::new("/opt/k3s"), said);
        assert_eq!(of("k3s version v1.36.1+k3s1 (0a1b2c3d)").unwrap().stand_in, None);
        let stand_in = of("k3s version v1.36.0+k3s1-stand-in").unwrap().stand_in.unwrap();
        assert!(stand_in.contains("stand-in") && stand_in.contains("--k3s"), "{stand_in}");
        let error = of("kubectl version 1").unwrap_err().to_string();
        assert!(error.contains("--k3s /opt/k3s") && error.contains("kubectl"), "{error}");
        assert!(of("").is_err());
    }

    #[tokio::test]
    async fn a_program_that_fails_is_refused_with_its_flag() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("k3s");
        crate::files::write_atomic(&path, b"#!/bin/sh\necho broken >&2; exit 3\n", None).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let error = ask(&path).await.unwrap_err().to_string();
        assert!(error.starts_with("--k3s ") && error.contains("broken"), "{error}");
    }
}
