//! Children that try to get away from a reap, each in its own way, with and without a cgroup.

use super::*;

/// Children that try to get away, each in its own way, while the leader exits or lives.
async fn escape(mut bench: Bench, escapes: &str, announced: usize) {
    orphans::become_subreaper().unwrap();
    for leader in ["exit 0", ": < never"] {
        let identity = bench.start(&format!("{escapes}\n{leader}")).await;
        let mut escaped = Vec::new();
        for _ in 0..announced {
            escaped.push(bench.announced().await);
        }
        if leader == "exit 0" {
            assert_eq!(soon(bench.host.exited(&identity)).await, ExitStatus::Code(0));
        }
        assert!(escaped.iter().all(is_alive));
        bench.end(&identity).await;
        assert_eq!(escaped.iter().filter(|process| is_alive(process)).count(), 0, "after: {leader}");
        assert!(!is_alive(&identity));
    }
}

const IN_THE_GROUP: &str = "sh -c 'echo $$ > gate; : < never' &";
pub(super) const IN_AN_OWN_SESSION: &str = "setsid sh -c 'echo $$ > gate; : < never' &";
/// As a postgres backend: own session, no environment, the leader's executable and directory.
const WITHOUT_ENVIRONMENT: &str = "setsid env -i /bin/sh -c 'echo $$ > gate; : < never' &";

#[tokio::test]
async fn nobody_escapes_a_cgroup_reap() {
    escape(Bench::new(), &[IN_THE_GROUP, IN_AN_OWN_SESSION, WITHOUT_ENVIRONMENT].join("\n"), 3).await;
}

#[tokio::test]
async fn a_group_that_outlives_its_leader_is_reaped_without_a_cgroup() {
    escape(Bench::with(ProcessHost::without_cgroups), IN_THE_GROUP, 1).await;
}

#[tokio::test]
async fn a_setsid_grandchild_is_reaped_without_a_cgroup() {
    escape(Bench::with(ProcessHost::without_cgroups), IN_AN_OWN_SESSION, 1).await;
}

#[tokio::test]
async fn an_orphan_without_environment_is_reaped_without_a_cgroup() {
    escape(Bench::with(ProcessHost::without_cgroups), WITHOUT_ENVIRONMENT, 1).await;
}

#[tokio::test]
async fn a_reap_leaves_other_components_alone() {
    let bench = Bench::with(ProcessHost::without_cgroups);
    let other = ComponentId::new("demo", "other");
    let mine = bench.start(": < never").await;
    let theirs = bench.host.spawn(&other, &bench.sh("sh -c ': < never'; exit 1")).await.unwrap().identity;
    bench.end(&mine).await;
    assert!(is_alive(&theirs) && !is_alive(&mine));
    bench.host.reap(&other, &theirs).await.unwrap();
}
