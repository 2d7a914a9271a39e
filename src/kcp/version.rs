//! Which kcp a program is, in its own words.

use crate::components::Program;
use crate::one_line::one_line;
use crate::process::tool::{self, Tool};
use berth_actors::spec::User;
use std::time::Duration;

/// It prints a line and ends; a large binary on a cold disk takes its time.
const DEADLINE: Duration = Duration::from_secs(10);

/// `v1.36.0+kcp-v0.33.0`; `None` where the program does not say. Cancel-safe.
pub(crate) async fn of(program: &Program, user: Option<User>) -> Option<String> {
    match ask(program, user).await {
        Ok(said) => Some(said),
        Err(reason) => {
            tracing::debug!(%reason, "a kcp that does not say its version");
            None
        }
    }
}

/// The same, or why it does not say: in one line.
pub(crate) async fn ask(program: &Program, user: Option<User>) -> Result<String, String> {
    // Berth itself, under another name.
    if program.arg0.is_some() {
        return Ok("stand-in".to_owned());
    }
    let tool = Tool {
        program: program.path.clone(),
        args: vec!["--version".to_owned()],
        dir: "/".into(),
        user,
        ..Tool::default()
    };
    let output = tool::run(tool, DEADLINE).await.map_err(one_line)?;
    let first = output.stdout.lines().next().unwrap_or_default();
    said(&output.stdout).ok_or_else(|| {
        format!("{} is no kcp: `--version` says {:?}", program.path.display(), one_line(first))
    })
}

/// Of `kcp version v1.36.0+kcp-v0.33.0`, the last word.
fn said(output: &str) -> Option<String> {
    let version = output.trim().strip_prefix("kcp version ")?;
    (!version.is_empty()).then(|| one_line(version))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_what_follows_the_name() {
        assert_eq!(said("kcp version v1.36.0+kcp-v0.33.0\n").as_deref(), Some("v1.36.0+kcp-v0.33.0"));
        for other in ["", "kcp version ", "usage: kcp", "Error: unknown flag: --version"] {
            assert_eq!(said(other), None, "{other}");
        }
    }
}
