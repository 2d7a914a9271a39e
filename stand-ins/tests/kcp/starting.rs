//! A start that goes well: files, socket, log, readiness, lease.

use crate::client::{CONFIG_MAPS, LEASE};
use crate::slot::{FRONT, Slot, listeners};
use crate::store::Store;
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[tokio::test]
async fn a_first_start_leaves_the_five_files_and_serves_with_one_listener() {
    let mut store = Store::start().await;
    let etcd = store.kine().await;
    let mut slot = Slot::start(store.path("root"), &etcd, &[], &[]);
    let port = slot.port().await;
    let mode = |name: &str| fs::metadata(slot.root.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(""), 0o700);
    for (name, expected) in [
        ("sa.key", 0o600),
        ("apiserver.crt", 0o644),
        ("apiserver.key", 0o600),
        (".admin-token-store", 0o600),
        ("admin.kubeconfig", 0o600),
    ] {
        assert_eq!(mode(name), expected, "{name}");
    }
    let hash = fs::read(slot.root.join(".admin-token-store")).unwrap();
    assert_eq!(hash, Sha256::digest(slot.token("shard-admin")).to_vec());
    let kubeconfig = fs::read_to_string(slot.root.join("admin.kubeconfig")).unwrap();
    assert!(!kubeconfig.contains(&port.to_string()), "the real port is nobody's business");

    let client = slot.client("shard-admin").await;
    let (status, body) = client.with_token(None).get("/readyz").await.unwrap();
    assert_eq!(status, 500);
    assert!(body.contains("[-]poststarthook/kcp-start-informers failed: reason withheld\n"), "{body}");
    assert!(body.ends_with("readyz check failed\n"), "{body}");
    assert_eq!(client.get("/livez").await.unwrap().0, 500);
    assert_eq!(client.get(CONFIG_MAPS).await.unwrap().0, 200, "the API answers before it is ready");

    slot.ready().await;
    assert_eq!(client.get("/livez").await.unwrap(), (200, "ok".to_owned()));
    assert_eq!(listeners(slot.pid()), 1);
    let lease = client.object(LEASE).await;
    assert_eq!(lease["spec"]["holderIdentity"], slot.identity().await);
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 60);
    assert_eq!(lease["spec"]["leaseTransitions"], 0);
    assert_eq!(lease["metadata"]["annotations"]["kcp.io/cluster"], "system:admin");
    let shard = client.object("/clusters/root/apis/core.kcp.io/v1alpha1/shards/root").await;
    for url in ["baseURL", "externalURL", "virtualWorkspaceURL"] {
        assert_eq!(shard["spec"][url], FRONT);
    }
}

#[tokio::test]
async fn a_knob_delays_readiness_but_not_the_api() {
    let mut store = Store::start().await;
    let etcd = store.kine().await;
    let began = tokio::time::Instant::now();
    let mut slot = Slot::start(store.path("root"), &etcd, &[], &[("KCP_STANDIN_READY_AFTER", "7")]);
    slot.log.until("started leading").await;
    let client = slot.client("shard-admin").await;
    assert_eq!(client.get(CONFIG_MAPS).await.unwrap().0, 200);
    slot.ready().await;
    assert!(began.elapsed().as_secs() >= 7);
}

#[tokio::test]
async fn a_goaway_chance_sends_http2_clients_elsewhere_without_a_lost_request() {
    let mut store = Store::start().await;
    let etcd = store.kine().await;
    let mut slot = Slot::start(store.path("root"), &etcd, &["--goaway-chance=0.02"], &[]);
    let client = slot.ready().await;
    // One in fifty: two thousand without any is not luck.
    assert!(client.http2_until_goaway(2000).await < 2000);
}
