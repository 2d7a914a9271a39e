//! One process from its start to its reap: exit status, signals, and that an identity is of one process only.

use super::*;

#[tokio::test]
async fn exit_codes_and_signals_are_told_to_everyone_who_asks() {
    let bench = Bench::new();
    for (script, status) in [
        ("exit 0", ExitStatus::Code(0)),
        ("exit 7", ExitStatus::Code(7)),
        ("kill -SEGV $$", ExitStatus::Signal(11)),
    ] {
        let identity = bench.start(script).await;
        let (one, other) =
            soon(async { tokio::join!(bench.host.exited(&identity), bench.host.exited(&identity)) }).await;
        assert_eq!((one, other), (status, status));
        bench.end(&identity).await;
        assert_eq!(soon(bench.host.exited(&identity)).await, status, "asked again after the reap");
    }
}

#[tokio::test]
async fn an_ignored_term_is_followed_by_a_kill_that_is_not() {
    let mut bench = Bench::new();
    let identity = bench.start("trap '' TERM; echo armed > gate; : < never").await;
    assert_eq!(bench.line().await, "armed");
    bench.host.signal(&identity, Signal::Term).await.unwrap();
    bench.host.signal(&identity, Signal::Kill).await.unwrap();
    assert_eq!(soon(bench.host.exited(&identity)).await, ExitStatus::Signal(9));
    bench.host.signal(&identity, Signal::Term).await.expect("gone is not an error");
    bench.end(&identity).await;
}

#[tokio::test]
async fn an_identity_of_the_past_reaches_nobody() {
    let bench = Bench::new();
    let now = bench.start(": < never").await;
    let past = Identity { start_time: now.start_time - 1, ..now.clone() };
    assert_eq!(soon(bench.host.exited(&past)).await, ExitStatus::Unknown);
    bench.host.signal(&past, Signal::Kill).await.unwrap();
    bench.end(&past).await;
    assert!(is_alive(&now));
    bench.end(&now).await;
}

#[tokio::test]
async fn another_daemons_process_is_watched_and_signalled_after_its_identity_was_checked() {
    let bench = Bench::new();
    let identity = bench.start(": < never").await;
    let successor = ProcessHost::new(&bench.layout).unwrap();
    successor.signal(&identity, Signal::Term).await.unwrap();
    soon(successor.exited(&identity)).await;
    successor.reap(&id(), &identity).await.unwrap();
    assert_eq!(Ledger::open(bench.layout.ledger()).unwrap().all().unwrap(), []);
}

#[tokio::test]
async fn a_component_starts_again_only_after_its_reap() {
    let bench = Bench::new();
    let first = bench.start("exit 0").await;
    soon(bench.host.exited(&first)).await;
    let refusal = bench.host.spawn(&id(), &bench.sh("exit 0")).await.unwrap_err();
    assert!(refusal.to_string().contains("not been reaped"), "{refusal}");

    let record = Ledger::open(bench.layout.ledger()).unwrap().read(&id()).unwrap();
    assert_eq!(record.identity(), Some(&first));
    bench.end(&first).await;
    bench.end(&first).await;
    let second = bench.start(": < never").await;
    bench.end(&first).await;
    assert!(is_alive(&second), "reaping the past is no reap of the present");
    bench.end(&second).await;
}

/// The next life takes up the record and the cgroup of the one before; once nobody comes, nothing of it is left.
#[tokio::test]
async fn what_the_dead_leave_in_files_is_taken_up_or_cleared() {
    for host in [ProcessHost::new, ProcessHost::without_cgroups] {
        let bench = Bench::with(host);
        orphans::become_subreaper().unwrap();
        for code in 0..3 {
            let identity = bench.start(&format!("exit {code}")).await;
            assert_eq!(soon(bench.host.exited(&identity)).await, ExitStatus::Code(code));
            bench.end(&identity).await;
            assert!(identity_of(identity.pid).is_none_or(|now| now != identity), "it was waited for");
        }
        bench.host.tidy().await;
        assert_eq!(Ledger::open(bench.layout.ledger()).unwrap().all().unwrap(), []);
        let last = bench.start(": < never").await;
        assert!(is_alive(&last));
        bench.end(&last).await;
    }
}
