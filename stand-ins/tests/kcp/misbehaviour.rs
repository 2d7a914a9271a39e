//! The ways a real kcp goes wrong, on demand.

use crate::client::CONFIG_MAPS;
use crate::slot::{Slot, listeners};
use crate::store::Store;
use rustix::process::Signal;

const HANG: (&str, &str) = ("KCP_STANDIN_HANG", "once");

#[tokio::test]
async fn a_hung_start_keeps_three_hooks_red_ignores_sigterm_and_is_cured_by_a_kill() {
    let mut store = Store::start().await;
    let etcd = store.kine().await;
    let root = store.path("root");
    let mut slot = Slot::start(root.clone(), &etcd, &[], &[HANG]);
    slot.log.until("controller.go:116] \"error deleting old lease\" err=\"Delete").await;
    slot.log.until("is forbidden: not yet ready to handle request").await;
    let client = slot.client("shard-admin").await;
    let red = |body: &str| {
        body.lines().filter(|line| line.starts_with("[-]")).map(str::to_owned).collect::<Vec<_>>()
    };
    let (status, body) = client.get("/readyz").await.unwrap();
    assert_eq!(status, 500);
    assert_eq!(
        red(&body),
        [
            "[-]poststarthook/crd-informer-synced failed: reason withheld",
            "[-]poststarthook/kcp-start-informers failed: reason withheld",
            "[-]poststarthook/kcp-start-openapiv3-controller failed: reason withheld"
        ]
    );
    assert_eq!(client.get(CONFIG_MAPS).await.unwrap().0, 200, "only /readyz tells");
    slot.signal(Signal::TERM);
    slot.log.until("AfterShutdownDelayDuration").await;
    assert!(
        red(&client.get("/readyz").await.unwrap().1)
            .contains(&"[-]shutdown failed: reason withheld".to_owned())
    );
    assert!(slot.runs());
    slot.signal(Signal::KILL);
    slot.exit().await;
    Slot::start(root, &etcd, &[], &[HANG]).ready().await;
}

#[tokio::test]
async fn a_crash_after_ready_exits_two() {
    let mut store = Store::start().await;
    let etcd = store.kine().await;
    let knobs = [("KCP_STANDIN_CRASH_AFTER_READY", "0"), ("KCP_STANDIN_SECOND_LISTENER", "1")];
    let mut slot = Slot::start(store.path("root"), &etcd, &[], &knobs);
    slot.port().await;
    assert_eq!(listeners(slot.pid()), 2);
    assert_eq!(slot.exit().await, Some(2));
}
