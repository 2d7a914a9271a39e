//! Short programs that are run to their end: output, last words, and what happens to one that is late or no longer wanted.

use super::*;

pub(super) fn tool_in(dir: &Path, script: &str) -> Tool {
    Tool {
        program: "/bin/sh".into(),
        args: vec!["-c".into(), script.into()],
        env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
        dir: dir.to_owned(),
        user: None,
    }
}

#[tokio::test]
async fn a_tool_hands_back_its_output_or_its_last_words() {
    let dir = tempfile::tempdir().unwrap();
    let run = async |script| tool::run(tool_in(dir.path(), script), PATIENCE).await;
    let output = run("echo out; echo err >&2").await.unwrap();
    assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("out\n", "err\n"));
    let error = run("seq 9 >&2; exit 3").await.unwrap_err().to_string();
    assert_eq!(error, "/bin/sh: exit code 3; its last words: 5 | 6 | 7 | 8 | 9");
    let missing = tool::run(Tool { program: "/missing".into(), ..tool_in(dir.path(), "") }, PATIENCE).await;
    assert!(matches!(missing, Err(ToolError::Start { .. })));
}

#[tokio::test]
async fn a_tool_nobody_waits_for_any_more_is_killed() {
    let mut bench = Bench::new();
    let tool = tokio::spawn(tool::run(tool_in(bench.layout.state(), "echo $$ > gate; : < never"), PATIENCE));
    let tool_of = identity_of(bench.line().await.parse().unwrap()).unwrap();
    tool.abort();
    soon(async {
        while is_alive(&tool_of) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_tool_that_is_late_is_killed_with_its_children() {
    let mut bench = Bench::new();
    let script = "sh -c 'echo $$ > gate; : < never' & echo stuck; : < never";
    let error =
        tool::run(tool_in(bench.layout.state(), script), Duration::from_millis(300)).await.unwrap_err();
    assert_eq!(error.to_string(), "/bin/sh: not done after 0s, killed; its last words: stuck");
    let child = bench.line().await.parse().unwrap();
    // Killed with the group, though not dead at once; at most a zombie that nobody has collected.
    soon(async {
        while identity_of(child).is_some_and(|child| is_alive(&child)) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
