//! How it ends: politely, impatiently, too early, and by SIGKILL.

use crate::client::CONFIG_MAPS;
use crate::slot::{Slot, children};
use crate::store::Store;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

#[tokio::test]
async fn sigterm_ends_watches_cleanly_and_serves_no_objects_until_it_exits_zero() {
    let mut store = Store::start().await;
    let etcd = store.kine().await;
    let mut slot = Slot::start(store.path("root"), &etcd, &["--shutdown-delay-duration=3s"], &[]);
    let client = slot.ready().await;
    let mut watch = client.watch(CONFIG_MAPS).await;
    let http2 = client.idle_http2().await;
    slot.signal(Signal::TERM);
    while watch.next().await.expect("a clean end").is_some() {}

    let (status, body) = client.get("/readyz").await.unwrap();
    assert_eq!(status, 500);
    assert!(body.contains("[-]shutdown failed: reason withheld\n"), "{body}");
    assert_eq!(client.get("/livez").await.unwrap().0, 200);
    let mut answered = 0;
    for _ in 0..12 {
        // The others end without an answer.
        if let Ok((status, body)) = client.get(CONFIG_MAPS).await {
            assert_eq!(status, 504);
            assert!(
                body.starts_with("{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Timeout: "),
                "{body}"
            );
            answered += 1;
        }
    }
    assert!(answered > 0);
    assert!(http2.await, "GOAWAY without an error");
    assert_eq!(slot.exit().await, Some(0));
    slot.log.until("stopped leading").await;
    slot.log.until("apiserver is exiting").await;
}

#[tokio::test]
async fn a_second_sigterm_exits_one() {
    let mut store = Store::start().await;
    let etcd = store.kine().await;
    let mut slot = Slot::start(store.path("root"), &etcd, &["--shutdown-delay-duration=60s"], &[]);
    slot.ready().await;
    slot.signal(Signal::TERM);
    slot.log.until("ShutdownInitiated").await;
    slot.signal(Signal::TERM);
    assert_eq!(slot.exit().await, Some(1));
}

#[tokio::test]
async fn sigterm_during_the_start_exits_255() {
    // Nothing listens there: the backend waits for it, and so does the start.
    let directory = tempfile::tempdir().unwrap();
    let mut slot = Slot::start(directory.path().join("root"), "http://127.0.0.1:1", &[], &[]);
    while children(slot.pid()).is_empty() {
        tokio::task::yield_now().await;
    }
    slot.signal(Signal::TERM);
    assert_eq!(slot.exit().await, Some(255));
}

#[tokio::test]
async fn sigkill_takes_the_backend_along() {
    let mut store = Store::start().await;
    let etcd = store.kine().await;
    let mut slot = Slot::start(store.path("root"), &etcd, &[], &[]);
    slot.ready().await;
    let [backend] = children(slot.pid())[..] else { panic!("one child") };
    let backend = Pid::from_raw(backend).unwrap();
    let gone = pidfd_open(backend, PidfdFlags::empty()).unwrap();
    slot.signal(Signal::KILL);
    assert_eq!(slot.exit().await, None);
    let limit = Timespec { tv_sec: 90, tv_nsec: 0 };
    let poll = move || poll(&mut [PollFd::new(&gone, PollFlags::IN)], Some(&limit));
    assert_eq!(tokio::task::spawn_blocking(poll).await.unwrap(), Ok(1), "the backend ends too");
}
