//! Two slots on one store: what they share, and how the lease goes from one to the other.

use crate::client::{CONFIG_MAPS, LEASE};
use crate::lines::PATIENCE;
use crate::slot::Slot;
use crate::store::Store;
use hyper::Method;
use rustix::process::Signal;

#[tokio::test]
async fn two_slots_share_objects_and_shard_admin_and_hand_the_lease_over() {
    let mut store = Store::start().await;
    let (etcd_a, etcd_b) = (store.kine().await, store.kine().await);
    let mut a = Slot::start(store.path("a"), &etcd_a, &[], &[]);
    let on_a = a.ready().await;
    a.log.until("started leading").await;
    let root_b = a.stage(store.path("b"));
    let mut b = Slot::start(root_b, &etcd_b, &[], &[]);
    let on_b = b.ready().await;

    assert_eq!(a.token("shard-admin"), b.token("shard-admin"));
    assert_eq!(on_b.with_token(Some(&a.token("kcp-admin"))).get("/version").await.unwrap().0, 401);
    assert_eq!(on_b.with_token(Some(&b.token("kcp-admin"))).get(CONFIG_MAPS).await.unwrap().0, 200);

    let mut watch = on_b.watch(CONFIG_MAPS).await;
    on_a.create("canary").await;
    let event = loop {
        let event = tokio::time::timeout(PATIENCE, watch.next()).await.unwrap().unwrap().expect("an event");
        if event["object"]["metadata"]["name"] == "canary" {
            break event;
        }
    };
    assert_eq!(event["type"], "ADDED");

    let old = a.identity().await;
    assert!(b.log.until("leader is someone else").await.contains(&old));
    a.signal(Signal::TERM);
    assert_eq!(a.exit().await, Some(0));
    let lease = on_b.object(LEASE).await;
    assert_eq!(lease["spec"]["holderIdentity"], old, "nothing is released at the end");

    let delete = |uid: &str, version: &str| {
        format!("{{\"preconditions\":{{\"uid\":\"{uid}\",\"resourceVersion\":\"{version}\"}}}}")
    };
    let uid = lease["metadata"]["uid"].as_str().unwrap();
    let version = lease["metadata"]["resourceVersion"].as_str().unwrap();
    assert_eq!(on_b.send(Method::DELETE, LEASE, &delete(uid, "1")).await.unwrap().0, 409);
    let deleted = tokio::time::Instant::now();
    assert_eq!(on_b.send(Method::DELETE, LEASE, &delete(uid, version)).await.unwrap().0, 200);
    b.log.until("started leading").await;
    assert!(deleted.elapsed().as_secs() < 20, "far from the sixty seconds of an expiry");
    let lease = on_b.object(LEASE).await;
    assert_eq!(lease["spec"]["holderIdentity"], b.identity().await);
    assert_eq!(lease["spec"]["leaseTransitions"], 0);
}
