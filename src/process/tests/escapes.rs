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

/// As daemon(3) does it, but with a fork more: own session, no parent, the root directory. It keeps its environment.
const DAEMONIZED: &str =
    r#"D=$PWD setsid sh -c '(cd / && exec sh -c "echo \$\$ > \$D/gate; : < \$D/never") & exit 0' &"#;
/// The same with an environment of its own: of what a process can shed, nothing is left.
const WITHOUT_ANY_MARK: &str = r#"setsid env -i D="$PWD" /bin/sh -c '(cd / && exec sh -c "echo \$\$ > \$D/gate; : < \$D/never") & exit 0' &"#;
/// SIGTERM is ignored by everyone born after the trap.
const DEAF: &str =
    "trap '' TERM; setsid sh -c 'echo $$ > gate; : < never' & sh -c 'echo $$ > gate; : < never' &";

#[tokio::test]
async fn nobody_escapes_a_cgroup_reap() {
    if !Bench::new().host.has_cgroups() {
        return not_exercised("a reap by cgroup.kill: no cgroup v2 hierarchy that may be written to");
    }
    let every_way = [IN_THE_GROUP, IN_AN_OWN_SESSION, WITHOUT_ENVIRONMENT, DAEMONIZED].join("\n");
    escape(Bench::new(), &every_way, 4).await;
}

#[tokio::test]
async fn a_daemon_forked_twice_is_reaped_without_a_cgroup() {
    escape(Bench::with(ProcessHost::without_cgroups), DAEMONIZED, 1).await;
}

#[tokio::test]
async fn a_whole_tree_that_ignores_sigterm_is_reaped() {
    for host in [ProcessHost::new, ProcessHost::without_cgroups] {
        escape(Bench::with(host), DEAF, 2).await;
    }
}

/// The limit of a reap without a cgroup, and the reason to have one (docs/supervision.md).
#[tokio::test]
async fn what_sheds_parents_session_environment_and_directory_is_only_seen_by_its_cgroup() {
    orphans::become_subreaper().unwrap();
    for host in [ProcessHost::new, ProcessHost::without_cgroups] {
        let mut bench = Bench::with(host);
        let leader = bench.start(&format!("{WITHOUT_ANY_MARK} wait")).await;
        let escaped = bench.announced().await;
        soon(bench.host.exited(&leader)).await;
        let record = Ledger::open(bench.layout.ledger()).unwrap().read(&id()).unwrap();
        bench.end(&leader).await;
        assert_eq!(is_alive(&escaped), record.cgroup.is_none());
        bench.host.signal(&escaped, Signal::Kill).await.unwrap();
        soon(bench.host.exited(&escaped)).await;
    }
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
