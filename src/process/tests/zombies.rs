//! Zombies: whose they are, who collects them, and that none holds up a reap.

use super::tools::tool_in;
use super::*;

#[tokio::test]
async fn orphaned_zombies_are_collected_and_no_status_is_stolen() {
    let mut bench = Bench::new();
    orphans::adopt().unwrap();
    let leader = bench.start("setsid sh -c 'echo $$ > gate' & exit 3").await;
    let orphan = bench.announced().await;
    soon(async {
        while identity_of(orphan.pid).is_some_and(|now| now == orphan) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(soon(bench.host.exited(&leader)).await, ExitStatus::Code(3));
    let tool = tool::run(tool_in(bench.layout.state(), "exit 4"), PATIENCE).await.unwrap_err().to_string();
    assert!(tool.contains("exit code 4"), "{tool}");
    bench.end(&leader).await;
}
