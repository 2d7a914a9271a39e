//! Whether a binary may succeed the running daemon: it is asked who it is, and has to understand what the daemon was started
//! with. A daemon that went for one that cannot start would leave everything unattended.

use crate::process::tool::{self, Tool};
use berth_actors::message::Refusal;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// It prints a line and ends; a cold disk may have to find the file first.
const ANSWER: Duration = Duration::from_secs(10);

/// Runs `program --version` and each of `checks` on it. Cancel-safe: a check that is dropped is killed.
pub(super) async fn check(program: &Path, checks: &[Vec<OsString>]) -> Result<(), Refusal> {
    let refuse = |why: String| Refusal::BadRequest(format!("{} cannot take over: {why}", program.display()));
    if !program.is_absolute() {
        return Err(refuse("name it by its absolute path".to_owned()));
    }
    let said = run(program, vec!["--version".into()]).await.map_err(refuse)?;
    if !said.starts_with("berth ") {
        let said: String = said.lines().next().unwrap_or_default().chars().take(80).collect();
        return Err(refuse(format!("asked for its version it says {said:?}, so it is no berth")));
    }
    for arguments in checks {
        run(program, arguments.clone()).await.map_err(refuse)?;
    }
    Ok(())
}

async fn run(program: &Path, args: Vec<OsString>) -> Result<String, String> {
    let args = args.into_iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let env: BTreeMap<String, String> = std::env::vars().collect();
    // The daemon's own: a configuration may be named relative to it.
    let dir = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let tool = Tool { program: program.to_owned(), args, env, dir, user: None };
    tool::run(tool, ANSWER).await.map(|output| output.stdout).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn refusal(program: &str) -> String {
        check(Path::new(program), &[]).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn what_is_no_berth_is_refused_by_name_and_reason() {
        let said = refusal("berth").await;
        assert!(said.contains("absolute path"), "{said}");
        let said = refusal("/no/such/berth").await;
        assert!(said.contains("/no/such/berth"), "{said}");
        let said = refusal("/bin/sh").await;
        assert!(said.starts_with("/bin/sh cannot take over: "), "{said}");
        let said = refusal("/bin/echo").await;
        assert!(said.contains("no berth"), "{said}");
    }
}
