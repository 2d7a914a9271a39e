//! A second host on one state directory, as the next daemon makes it after the first was killed.

use super::*;
use crate::process::ledger::{Phase, Record};
use crate::process::life::Life;
use berth_actors::host::Accounted;
use std::net::SocketAddr;

type Make = fn(&Layout) -> Result<ProcessHost, crate::files::FileError>;

const HOSTS: [Make; 2] = [ProcessHost::new, ProcessHost::without_cgroups];

fn known(names: &[&ComponentId]) -> BTreeSet<ComponentId> {
    names.iter().copied().cloned().collect()
}

fn accounted(names: &[&ComponentId]) -> Accounted {
    Accounted { components: known(names), ..Accounted::default() }
}

fn other() -> ComponentId {
    ComponentId::new("demo", "openbao")
}

impl Bench {
    fn record(&self) -> Record {
        Ledger::open(self.layout.ledger()).unwrap().read(&id()).unwrap()
    }

    fn rewrite(&self, record: &Record) {
        Ledger::open(self.layout.ledger()).unwrap().write(record).unwrap();
    }

    /// Ends the wait in `: < never`, which is one for a writer.
    fn let_go(&self) -> std::fs::File {
        std::fs::File::options().read(true).write(true).open(self.path("never")).unwrap()
    }

    fn next_daemon(&self) -> ProcessHost {
        ProcessHost::new(&self.layout).unwrap()
    }
}

#[tokio::test]
async fn one_that_is_killed_before_it_is_taken_over_ends_and_is_seen_to() {
    for host in HOSTS {
        let mut bench = Bench::with(host);
        let spec = bench.sh("echo $$ > gate; : < never");
        bench.host.spawn(&id(), &spec).await.unwrap();
        bench.announced().await;
        let next = host(&bench.layout).unwrap();
        next.kill_survivor(&id()).await.unwrap();
        let survivor = next.adopt(&id()).await.unwrap().unwrap();
        next.exited(&survivor.running.identity).await;
        next.reap(&id(), &survivor.running.identity).await.unwrap();
        next.kill_survivor(&id()).await.expect("one that is gone is no error");
    }
}

#[tokio::test]
async fn a_process_is_taken_over_as_it_is_and_ends_like_a_child() {
    for host in HOSTS {
        let mut bench = Bench::with(host);
        let spec = bench.sh("echo $$ > gate; : < never; exit 7");
        let spawned = bench.host.spawn(&id(), &spec).await.unwrap();
        bench.announced().await;
        let address = SocketAddr::from(([127, 0, 0, 1], 2379));
        bench.host.record_address(&id(), &spawned.identity, address).await;

        let next = host(&bench.layout).unwrap();
        assert_eq!(next.survivors().await, known(&[&id()]));
        let refusal = next.spawn(&id(), &spec).await.unwrap_err().to_string();
        assert!(refusal.contains("of an earlier daemon still runs"), "{refusal}");
        assert_eq!(next.reap_strays(&accounted(&[&id()])).await.unwrap(), [""; 0]);
        let survivor = next.adopt(&id()).await.unwrap().unwrap();
        assert!(survivor.alive && survivor.digest == spec.digest());
        assert_eq!(survivor.running.identity, spawned.identity);
        assert_eq!((survivor.running.address, survivor.running.log), (Some(address), spec.output.clone()));
        assert!(next.adopt(&id()).await.unwrap().is_none(), "taken once");

        let _writer = bench.let_go();
        assert_eq!(soon(next.exited(&spawned.identity)).await, ExitStatus::Code(7));
        next.reap(&id(), &spawned.identity).await.unwrap();
        next.tidy().await;
        let left = bench.record();
        assert_eq!((left.phase, left.address), (Phase::Ended(spawned.identity), Some(address)));
        let again = next.spawn(&id(), &bench.sh(": < never")).await.unwrap();
        next.reap(&id(), &again.identity).await.unwrap();
    }
}

/// Its parent waits for it, or never does: the daemon is told in both cases, and is no parent in either.
#[tokio::test]
async fn the_status_of_another_parents_child_is_seen() {
    let mut bench = Bench::new();
    for parent in ["wait", "exec sleep 600"] {
        for (end, status) in [("exit 7", ExitStatus::Code(7)), ("kill -KILL $$", ExitStatus::Signal(9))] {
            let leader = bench.start(&format!("sh -c 'echo $$ > gate; : < never; {end}' & {parent}")).await;
            let stranger = bench.announced().await;
            let life = Life::adopt(&stranger, None).unwrap().unwrap();
            let _writer = bench.let_go();
            assert_eq!(soon(life.exited()).await, status, "{parent}");
            bench.end(&leader).await;
        }
    }
}

#[tokio::test]
async fn what_nobody_accounts_for_is_ended_and_the_rest_is_left_alone_with_its_children() {
    for host in HOSTS {
        let mut bench = Bench::with(host);
        let kept = bench.start("setsid sh -c 'echo $$ > gate; : < never' & : < never").await;
        let grandchild = bench.announced().await;
        let stray = bench.host.spawn(&other(), &bench.sh(": < never")).await.unwrap().identity;

        let next = host(&bench.layout).unwrap();
        let ended = next.reap_strays(&accounted(&[&id()])).await.unwrap();
        assert!(ended.len() == 1 && ended[0].starts_with("demo/openbao"), "{ended:?}");
        assert!(is_alive(&kept) && is_alive(&grandchild) && !is_alive(&stray));
        assert!(next.adopt(&other()).await.unwrap().is_none());
        next.adopt(&id()).await.unwrap().unwrap();
        next.reap(&id(), &kept).await.unwrap();
        assert!(!is_alive(&grandchild));
    }
}

#[tokio::test]
async fn one_that_died_meanwhile_still_says_where_it_listened_and_leaves_no_child() {
    let mut bench = Bench::new();
    let leader = bench.start("setsid sh -c 'echo $$ > gate; : < never' & : < never").await;
    let grandchild = bench.announced().await;
    let address = SocketAddr::from(([127, 0, 0, 1], 2379));
    bench.host.record_address(&id(), &leader, address).await;
    bench.host.signal(&leader, Signal::Kill).await.unwrap();
    soon(bench.host.exited(&leader)).await;

    let next = bench.next_daemon();
    assert_eq!(next.survivors().await, known(&[]));
    next.reap_strays(&accounted(&[&id()])).await.unwrap();
    assert!(!is_alive(&grandchild));
    let survivor = next.adopt(&id()).await.unwrap().unwrap();
    assert_eq!((survivor.alive, survivor.running.address), (false, Some(address)));
    let again = next.spawn(&id(), &bench.sh(": < never")).await.unwrap().identity;
    assert_eq!(bench.record().known_address(), Some(address), "until its successor is found listening");
    next.reap(&id(), &again).await.unwrap();
}

/// Recorded, and yet not to be touched: the record is of another process, another daemon, or another boot.
#[tokio::test]
async fn a_record_that_its_process_does_not_confirm_harms_nobody() {
    let bench = Bench::new();
    let elsewhere = Bench::new();
    let stranger = elsewhere.start(": < never").await;
    let copied = elsewhere.record();
    let of_another_boot = Record {
        phase: Phase::Running(Identity { boot_id: "earlier".into(), ..stranger.clone() }),
        ..copied.clone()
    };
    let with_reused_pid = Record { token: "ours".into(), cgroup: None, ..copied.clone() };
    for record in [copied, of_another_boot, with_reused_pid] {
        bench.rewrite(&record);
        let next = bench.next_daemon();
        assert_eq!(next.survivors().await, known(&[]));
        assert_eq!(next.reap_strays(&accounted(&[&id()])).await.unwrap(), [""; 0]);
        assert!(next.adopt(&id()).await.unwrap().is_none_or(|survivor| !survivor.alive));
        assert!(is_alive(&stranger));
    }
    elsewhere.end(&stranger).await;
}

#[tokio::test]
async fn a_birth_whose_record_is_torn_or_lost_leaves_no_second_process() {
    for damage in ["torn", "lost"] {
        let bench = Bench::new();
        let newborn = bench.start(": < never").await;
        let path = bench.layout.ledger().join("demo.kine.json");
        match damage {
            "torn" => crate::files::write_atomic(&path, b"{\"component\":", None).unwrap(),
            _ => std::fs::remove_file(&path).unwrap(),
        }
        let next = bench.next_daemon();
        assert_eq!(next.survivors().await, known(&[]));
        let ended = next.reap_strays(&accounted(&[&id()])).await.unwrap();
        assert!(ended.len() == 1 && ended[0].contains(&newborn.pid.to_string()), "{damage}: {ended:?}");
        assert!(next.adopt(&id()).await.unwrap().is_none());
        assert_eq!(Ledger::open(bench.layout.ledger()).unwrap().all().unwrap(), []);
    }
}

/// The daemon died between a birth and its record, or the disk was full then.
#[tokio::test]
async fn a_process_whose_record_was_not_completed_is_found_by_its_token_and_kept() {
    for host in HOSTS {
        let mut bench = Bench::with(host);
        let newborn = bench.start("setsid sh -c 'echo $$ > gate; : < never' & : < never").await;
        let worker = bench.announced().await;
        bench.rewrite(&Record { phase: Phase::Intent, ..bench.record() });

        let next = host(&bench.layout).unwrap();
        assert_eq!(next.survivors().await, known(&[&id()]));
        assert_eq!(next.reap_strays(&accounted(&[&id()])).await.unwrap(), [""; 0]);
        let survivor = next.adopt(&id()).await.unwrap().unwrap();
        assert_eq!((survivor.alive, &survivor.running.identity), (true, &newborn));
        assert_eq!(bench.record().identity(), Some(&newborn), "and the next daemon need not search");
        next.reap(&id(), &newborn).await.unwrap();
        assert!(!is_alive(&newborn) && !is_alive(&worker));
    }
}

#[tokio::test]
async fn an_intent_whose_process_never_came_or_is_gone_is_dropped() {
    let bench = Bench::new();
    let newborn = bench.start(": < never").await;
    let record = bench.record();
    bench.end(&newborn).await;
    bench.rewrite(&Record { phase: Phase::Intent, ..record });
    let next = bench.next_daemon();
    assert_eq!(next.survivors().await, known(&[]));
    assert_eq!(next.reap_strays(&accounted(&[&id()])).await.unwrap(), [""; 0]);
    assert!(next.adopt(&id()).await.unwrap().is_none());
    assert_eq!(Ledger::open(bench.layout.ledger()).unwrap().all().unwrap(), []);
}

/// A daemon that dies while a component waits to be restarted: the port is on disk all the same.
#[tokio::test]
async fn a_port_outlives_the_reap_of_its_holder_and_a_birth_that_failed() {
    let bench = Bench::new();
    let first = bench.start(": < never").await;
    let address = SocketAddr::from(([127, 0, 0, 1], 2379));
    bench.host.record_address(&id(), &first, address).await;
    bench.end(&first).await;
    bench.host.spawn(&id(), &bench.spec("/nowhere/kine", &[])).await.unwrap_err();

    let next = bench.next_daemon();
    assert_eq!(next.survivors().await, known(&[]));
    next.reap_strays(&accounted(&[&id()])).await.unwrap();
    let survivor = next.adopt(&id()).await.unwrap().unwrap();
    assert_eq!((survivor.alive, survivor.running.address), (false, Some(address)));
    next.reap_strays(&accounted(&[])).await.unwrap();
    assert_eq!(Ledger::open(bench.layout.ledger()).unwrap().all().unwrap(), [], "of a cluster that is gone");
}

#[tokio::test]
async fn a_chain_nobody_knows_about_is_neither_adopted_nor_ended() {
    let mut bench = Bench::new();
    let leader = bench.start("setsid sh -c 'echo $$ > gate; : < never' & : < never").await;
    let grandchild = bench.announced().await;
    std::fs::remove_file(bench.layout.ledger().join("demo.kine.json")).unwrap();
    let recorded = bench.host.spawn(&other(), &bench.sh(": < never")).await.unwrap().identity;
    let next = bench.next_daemon();
    let untouched = BTreeSet::from(["demo".to_owned()]);
    let ended = next.reap_strays(&Accounted { untouched, ..Accounted::default() }).await.unwrap();
    assert_eq!(ended, [""; 0]);
    assert!([leader, grandchild, recorded].iter().all(is_alive));
    assert_eq!(Ledger::open(bench.layout.ledger()).unwrap().all().unwrap().len(), 1);
}
