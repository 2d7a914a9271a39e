//! Process trees that fork while they are being killed. Each is bounded by what it is, not by a limit: one forks once and
//! exits, so that never more than a few live; the other has 127 processes at most. Both end by themselves.

use super::*;
use crate::process::mark::StateMark;
use crate::process::table::Table;

/// Four lines of processes, each of which starts its successor in a session of its own and exits: whoever was listed is
/// gone before the signal comes. Ends after 2000 steps.
const RUNNERS: &str = r#"
cat > step.sh <<'STEP'
echo . >> steps
[ "$1" -eq 0 ] || { setsid sh step.sh $(($1 - 1)) & }
STEP
for runner in 1 2 3 4; do setsid sh step.sh 2000 & done
echo running > gate
"#;

/// Each process starts two, six generations deep, and stays.
const GROWTH: &str = r#"
cat > grow.sh <<'GROW'
echo . >> steps
[ "$1" -eq 0 ] || { sh grow.sh $(($1 - 1)) & setsid sh grow.sh $(($1 - 1)) & }
: < never
GROW
sh grow.sh 6 &
echo growing > gate
"#;

/// Who carries this bench's mark, whoever the parent is now.
fn marked(bench: &Bench) -> Vec<u32> {
    let mark = StateMark::of(&bench.layout);
    let table = Table::read().unwrap();
    let ours =
        |component: &Option<String>| component.as_deref().is_some_and(|value| mark.parse(value).is_some());
    table.iter().filter(|entry| ours(&entry.marks().component)).map(|entry| entry.pid).collect()
}

async fn is_stopped_for_good(mut bench: Bench, storm: &str) {
    orphans::become_subreaper().unwrap();
    for leader in ["exit 0", ": < never"] {
        let identity = bench.start(&format!("{storm}\n{leader}")).await;
        bench.line().await;
        bench.end(&identity).await;
        let steps = || std::fs::metadata(bench.path("steps")).map_or(0, |file| file.len());
        let before = steps();
        // One that is between two programs shows no mark: so many looks it cannot pass by.
        for _ in 0..10 {
            assert_eq!(marked(&bench), [0; 0], "after: {leader}");
        }
        assert_eq!(steps(), before, "after: {leader}");
    }
}

#[tokio::test]
async fn runners_that_are_gone_before_the_signal_comes_are_caught_by_a_cgroup() {
    is_stopped_for_good(Bench::new(), RUNNERS).await;
}

#[tokio::test]
async fn runners_that_are_gone_before_the_signal_comes_are_caught_without_a_cgroup() {
    is_stopped_for_good(Bench::with(ProcessHost::without_cgroups), RUNNERS).await;
}

#[tokio::test]
async fn a_tree_that_grows_while_it_is_killed_is_killed_whole() {
    for host in [ProcessHost::new, ProcessHost::without_cgroups] {
        is_stopped_for_good(Bench::with(host), GROWTH).await;
    }
}
