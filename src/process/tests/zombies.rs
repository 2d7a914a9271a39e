//! Zombies: whose they are, who collects them, and that none holds up a reap.

use super::tools::tool_in;
use super::*;

#[tokio::test]
async fn orphaned_zombies_are_collected_and_no_status_is_stolen() {
    let mut bench = Bench::new();
    orphans::adopt().unwrap();
    let leader = bench.start("setsid sh -c 'echo $$ > gate; : < never' & exit 3").await;
    let orphan = bench.announced().await;
    let _writer = std::fs::File::options().read(true).write(true).open(bench.path("never")).unwrap();
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

/// The leader becomes a program that knows nothing of the children it has, and never waits for one.
#[tokio::test]
async fn zombies_of_a_parent_that_never_waits_do_not_hold_up_its_reap() {
    orphans::become_subreaper().unwrap();
    for host in [ProcessHost::new, ProcessHost::without_cgroups] {
        let mut bench = Bench::with(host);
        let children = "for child in 1 2 3 4 5 6 7 8; do sh -c 'echo $$ > gate' & done; exec sleep 600";
        let parent = bench.start(children).await;
        let mut zombies = Vec::new();
        for _ in 0..8 {
            zombies.push(bench.announced().await);
        }
        let is_there = |zombie: &Identity| identity_of(zombie.pid).is_some_and(|now| now == *zombie);
        soon(async {
            while zombies.iter().any(is_alive) {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(zombies.iter().all(is_there), "nobody has waited for them");
        bench.end(&parent).await;
        soon(async {
            while zombies.iter().any(is_there) {
                orphans::collect();
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(!is_alive(&parent));
    }
}
