//! What the last daemon left running, and how the next one ends it.

use super::escapes::IN_AN_OWN_SESSION;
use super::*;

#[tokio::test]
async fn a_new_daemon_ends_what_the_last_one_left_and_asks_postgres_first() {
    for host in [ProcessHost::new, ProcessHost::without_cgroups] {
        let mut bench = Bench::with(host);
        let postgres = ComponentId::new("demo", "postgres");
        let polite = bench.sh("trap 'echo bye; exit 0' INT; sleep 600 & echo $$ > gate; wait");
        bench.host.spawn(&postgres, &polite).await.unwrap();
        let asked = bench.announced().await;
        bench.start("setsid sh -c 'echo $$ > gate; : < never' & exit 0").await;
        let killed = bench.announced().await;

        let elsewhere = Bench::new();
        let spared = elsewhere.start(": < never").await;

        let mut reaped = survivors::reap_all(&bench.layout).await.unwrap();
        assert!(!is_alive(&asked) && !is_alive(&killed) && is_alive(&spared));
        assert_eq!(bench.log(), "bye\n");
        reaped.retain(|survivor| survivor.pid == killed.pid);
        assert_eq!(reaped, [Survivor { component: id(), pid: killed.pid, name: "sh".into() }]);
        assert_eq!(Ledger::open(bench.layout.ledger()).unwrap().all().unwrap(), []);
        assert_eq!(survivors::reap_all(&bench.layout).await.unwrap(), []);
        elsewhere.end(&spared).await;
    }
}

#[tokio::test]
async fn a_survivor_whose_record_is_lost_is_found_by_its_mark() {
    for host in [ProcessHost::new, ProcessHost::without_cgroups] {
        let mut bench = Bench::with(host);
        let leader = bench.start(&format!("{IN_AN_OWN_SESSION} : < never")).await;
        let grandchild = bench.announced().await;
        Ledger::open(bench.layout.ledger()).unwrap().remove(&id()).unwrap();
        let reaped = survivors::reap_all(&bench.layout).await.unwrap();
        let pids: BTreeSet<u32> = reaped.iter().map(|survivor| survivor.pid).collect();
        assert_eq!(pids, BTreeSet::from([leader.pid, grandchild.pid]));
        assert!(!is_alive(&leader) && !is_alive(&grandchild));
    }
}
