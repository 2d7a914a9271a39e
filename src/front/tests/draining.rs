//! Drains over real sockets, with a plain protocol of lines.

use super::loopback::{ask, front, front_of, joined, slot_of_lines, within};
use crate::front::{Front, FrontConfig};
use berth_actors::host::{Dataplane, DrainReport};
use berth_actors::identity::SlotName;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;

const LIMIT: Duration = Duration::from_millis(400);

fn without_time(report: DrainReport) -> DrainReport {
    DrainReport { took_ms: 0, ..report }
}

/// A worker reads its clock once a turn, so its limit may begin a moment before the report's own clock does.
fn lasted(report: DrainReport, limit: Duration) -> bool {
    Duration::from_millis(report.took_ms + 1) >= limit
}

async fn client_of(front: &Front) -> BufStream<TcpStream> {
    BufStream::new(TcpStream::connect(front.address()).await.unwrap())
}

/// Asks in a closed loop until an answer brings the end with it. A request that meets an end is a failure.
async fn ask_until_the_end(mut client: BufStream<TcpStream>) -> u64 {
    for asked in 1.. {
        within(ask(&mut client, "again")).await.expect("a request met the end of its connection");
        match recv(client.get_ref(), &mut [0_u8; 1][..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return asked,
            Err(Errno::AGAIN) => (),
            other => panic!("after the answer came {other:?}"),
        }
    }
    unreachable!("the loop has no end of its own")
}

#[tokio::test]
async fn the_end_arrives_together_with_the_last_answer() {
    let front = front(FrontConfig::default());
    front.retarget(Some((SlotName::A, slot_of_lines(SlotName::A).await))).await;
    let mut clients = Vec::new();
    for _ in 0..8 {
        let mut client = client_of(&front).await;
        within(ask(&mut client, "once")).await.unwrap();
        clients.push(tokio::spawn(ask_until_the_end(client)));
    }
    front.retarget(None).await;
    let report = within(front.drain(SlotName::A, Duration::from_secs(10))).await;
    assert_eq!(without_time(report), DrainReport { held: 8, ..DrainReport::default() });
    for client in clients {
        assert!(client.await.unwrap() >= 1);
    }
    assert_eq!(front.status().per_slot[0].open, 0);
}

#[tokio::test]
async fn an_idle_connection_is_cut_in_silence_after_half_of_the_limit() {
    let front = front(FrontConfig::default());
    front.retarget(Some((SlotName::A, slot_of_lines(SlotName::A).await))).await;
    let mut client = client_of(&front).await;
    within(ask(&mut client, "once")).await.unwrap();
    let end = tokio::spawn(async move { client.read(&mut [0; 1]).await.unwrap() });
    let report = within(front.drain(SlotName::A, LIMIT)).await;
    assert_eq!(without_time(report), DrainReport { idle: 1, ..DrainReport::default() });
    assert!(lasted(report, LIMIT / 2), "{report:?}");
    assert_eq!(end.await.unwrap(), 0);
}

#[tokio::test]
async fn a_request_without_an_answer_is_waited_for_until_the_limit() {
    let (front, listener) = front_of(SlotName::A, FrontConfig::default()).await;
    let (mut client, mut server) = joined(&front, &listener).await;
    client.write_all(b"a long question").await.unwrap();
    server.read_exact(&mut [0; 15]).await.unwrap();
    let ends = tokio::spawn(async move {
        let ends = (client.read(&mut [0; 1]).await.unwrap(), server.read(&mut [0; 1]).await.unwrap());
        drop((client, server));
        ends
    });
    let report = within(front.drain(SlotName::A, LIMIT)).await;
    assert_eq!(without_time(report), DrainReport { forced: 1, ..DrainReport::default() });
    assert!(lasted(report, LIMIT), "{report:?}");
    assert_eq!(ends.await.unwrap(), (0, 0));
}

#[tokio::test]
async fn a_late_request_meets_no_reset_and_is_reported_as_raced() {
    let (front, listener) = front_of(SlotName::A, FrontConfig::default()).await;
    let (mut client, mut server) = joined(&front, &listener).await;
    client.write_all(b"?").await.unwrap();
    server.read_exact(&mut [0; 1]).await.unwrap();
    server.write_all(b"!").await.unwrap();
    client.read_exact(&mut [0; 1]).await.unwrap();
    let drain = tokio::spawn({
        let front = front.clone();
        async move { front.drain(SlotName::A, LIMIT).await }
    });
    // The server's end shows that the front has cut, while the client has not looked.
    assert_eq!(within(server.read(&mut [0; 1])).await.unwrap(), 0);
    client.write_all(&vec![7; 300_000]).await.unwrap();
    assert_eq!(within(client.read(&mut [0; 1])).await.unwrap(), 0);
    drop(client);
    drop(server);
    let report = within(drain).await.unwrap();
    assert_eq!(without_time(report), DrainReport { idle: 1, raced: 1, ..DrainReport::default() });
}

#[tokio::test]
async fn a_connection_that_closes_itself_is_reported_so() {
    let front = front(FrontConfig::default());
    front.retarget(Some((SlotName::A, slot_of_lines(SlotName::A).await))).await;
    let mut client = client_of(&front).await;
    within(ask(&mut client, "once")).await.unwrap();
    let drain = front.drain(SlotName::A, Duration::from_secs(600));
    // Polled first, so the order is given before the client leaves.
    let (report, ()) = within(async { tokio::join!(biased; drain, async { drop(client) }) }).await;
    assert_eq!(without_time(report), DrainReport { self_closed: 1, ..DrainReport::default() });
}

/// Far more than lies in sockets and buffers on the way.
const UPLOAD: usize = 8 << 20;

/// No two stretches alike, so that a byte in the wrong place is seen.
fn upload() -> Vec<u8> {
    (0..UPLOAD / 8).flat_map(|number| (number as u64).to_le_bytes()).collect()
}

/// A drain begins in the middle of an upload, whose server takes its time. `half_closed`: the client ends its direction with it.
async fn drained_in_an_upload(half_closed: bool) -> DrainReport {
    let (front, listener) = front_of(SlotName::A, FrontConfig::default()).await;
    let (mut client, mut server) = joined(&front, &listener).await;
    let client = tokio::spawn(async move {
        client.write_all(&upload()).await.unwrap();
        if half_closed {
            client.shutdown().await.unwrap();
        }
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        answer
    });
    let mut got = vec![0; UPLOAD];
    within(server.read_exact(&mut got[..UPLOAD / 8])).await.unwrap();
    let drain = front.drain(SlotName::A, Duration::from_secs(20));
    let rest = async {
        within(server.read_exact(&mut got[UPLOAD / 8..])).await.unwrap();
        if half_closed {
            assert_eq!(server.read(&mut [0; 1]).await.unwrap(), 0);
        }
        server.write_all(b"stored").await.unwrap();
        if half_closed {
            server.shutdown().await.unwrap();
        }
        assert_eq!(within(server.read(&mut [0; 1])).await.unwrap(), 0);
    };
    // Polled first, so the order is given before the rest is read.
    let (report, ()) = within(async { tokio::join!(biased; drain, rest) }).await;
    assert!(got == upload(), "the upload arrived, but not as it was sent");
    assert_eq!(client.await.unwrap(), "stored");
    without_time(report)
}

#[tokio::test]
async fn an_upload_of_megabytes_is_waited_for_and_its_answer_brings_the_end() {
    assert_eq!(drained_in_an_upload(false).await, DrainReport { held: 1, ..DrainReport::default() });
}

#[tokio::test]
async fn an_upload_of_megabytes_whose_client_has_closed_its_direction_ends_by_itself() {
    assert_eq!(drained_in_an_upload(true).await, DrainReport { self_closed: 1, ..DrainReport::default() });
}

#[tokio::test]
async fn a_drain_leaves_the_other_slot_and_later_connections_alone() {
    let front = front(FrontConfig::default());
    let (a, b) = (slot_of_lines(SlotName::A).await, slot_of_lines(SlotName::B).await);
    front.retarget(Some((SlotName::A, a))).await;
    let mut old = client_of(&front).await;
    within(ask(&mut old, "once")).await.unwrap();
    front.retarget(Some((SlotName::B, b))).await;
    let mut early = client_of(&front).await;
    within(ask(&mut early, "before")).await.unwrap();
    let drain = tokio::spawn({
        let front = front.clone();
        async move { front.drain(SlotName::A, LIMIT).await }
    });
    let mut during = client_of(&front).await;
    assert_eq!(within(ask(&mut during, "during")).await.as_deref(), Some("b during"));
    let report = within(drain).await.unwrap();
    assert_eq!(without_time(report), DrainReport { idle: 1, ..DrainReport::default() });
    assert_eq!(within(ask(&mut early, "after")).await.as_deref(), Some("b after"));
    // Back on the drained slot: its order is over.
    front.retarget(Some((SlotName::A, a))).await;
    let mut again = client_of(&front).await;
    assert_eq!(within(ask(&mut again, "back")).await.as_deref(), Some("a back"));
    assert_eq!(front.status().per_slot[0].open, 1);
}

#[tokio::test]
async fn a_drain_of_nothing_is_over_at_once() {
    let front = front(FrontConfig::default());
    let report = within(front.drain(SlotName::B, Duration::from_secs(600))).await;
    assert_eq!(without_time(report), DrainReport::default());
}
