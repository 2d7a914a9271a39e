//! Logs and events over the socket.

use super::super::api::StampedEvent;
use super::*;
use axum::body::Bytes;
use futures::{Stream, StreamExt};
use std::fs;
use std::io::Write;
use std::time::Duration;

async fn expect(chunks: &mut (impl Stream<Item = Result<Bytes, ClientError>> + Unpin), wanted: &str) {
    let mut got = Vec::new();
    while got.len() < wanted.len() {
        let chunk = tokio::time::timeout(Duration::from_secs(10), chunks.next()).await;
        got.extend_from_slice(&chunk.expect("no chunk in time").expect("the stream has ended").unwrap());
    }
    assert_eq!(String::from_utf8(got).unwrap(), wanted);
}

async fn all(chunks: impl Stream<Item = Result<Bytes, ClientError>>) -> String {
    let chunks: Vec<_> = chunks.map(|chunk| chunk.unwrap()).collect().await;
    String::from_utf8(chunks.concat()).unwrap()
}

fn append(harness: &Harness, log: &str, text: &str) {
    let path = harness.dir.path().join(log);
    let mut file = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[actix::test]
async fn the_last_lines_of_a_log_are_sent_and_the_answer_ends() {
    let harness = Harness::obedient();
    append(&harness, "slot-a-kcp.log", "one\ntwo\nthree\n");
    let query = LogQuery { lines: 2, follow: false };
    let chunks = harness.client.logs("slot-a", "kcp", query).await.unwrap();
    assert_eq!(all(chunks).await, "two\nthree\n");
}

#[actix::test]
async fn a_followed_log_goes_on_across_a_rotation() {
    let harness = Harness::obedient();
    append(&harness, "demo-kine.log", "one\n");
    let query = LogQuery { lines: 10, follow: true };
    let mut chunks = Box::pin(harness.client.logs("demo", "kine", query).await.unwrap());
    expect(&mut chunks, "one\n").await;
    append(&harness, "demo-kine.log", "two\n");
    expect(&mut chunks, "two\n").await;
    let log = harness.dir.path().join("demo-kine.log");
    fs::rename(&log, log.with_extension("log.1")).unwrap();
    append(&harness, "demo-kine.log", "three\n");
    expect(&mut chunks, "three\n").await;
}

#[actix::test]
async fn a_log_that_was_never_written_or_belongs_to_nobody_is_not_found() {
    let harness = Harness::obedient();
    let missing = harness.client.logs("demo", "kine", LogQuery::default()).await.map(drop);
    assert!(refusal(missing).to_string().contains("no log yet"));
    let unknown = harness.client.logs("web", "kine", LogQuery::default()).await.map(drop);
    assert!(matches!(refusal(unknown), Refusal::NotFound(_)));
}

#[actix::test]
async fn events_come_from_memory_and_then_live() {
    let harness = Harness::obedient();
    harness.events.record(event("started"));
    let past = all(harness.client.events(EventQuery { follow: false }).await.unwrap()).await;
    let only: StampedEvent = serde_json::from_str(past.trim_end()).unwrap();
    assert_eq!(only.event, event("started"));

    let mut live = Box::pin(harness.client.events(EventQuery { follow: true }).await.unwrap());
    expect(&mut live, &past).await;
    harness.events.record(event("ready"));
    let next = live.next().await.unwrap().unwrap();
    let next: StampedEvent = serde_json::from_slice(&next).unwrap();
    assert_eq!(next.event, event("ready"));
}

#[actix::test]
async fn a_shutdown_ends_open_streams_and_removes_the_socket() {
    let harness = Harness::obedient();
    append(&harness, "demo-kine.log", "one\n");
    let query = LogQuery { lines: 10, follow: true };
    let mut chunks = Box::pin(harness.client.logs("demo", "kine", query).await.unwrap());
    expect(&mut chunks, "one\n").await;
    harness.shutdown.cancel();
    assert!(chunks.next().await.is_none(), "a clean end, not a cut");
    harness.serving.await.unwrap();
    assert!(!harness.client.socket().exists());
}
