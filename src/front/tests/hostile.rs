//! Clients that mean harm, or do it without meaning to: too many, too slow, gone without a word.

use super::loopback::{ask, front, front_of, joined, parked, slot_of_lines, within};
use crate::front::{Descriptors, Front, FrontConfig, Keepalive};
use berth_actors::host::Dataplane;
use berth_actors::identity::SlotName;
use berth_actors::status::Refused;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpSocket, TcpStream};

/// A client at one of the addresses of loopback.
async fn client_at(last: u8, front: &Front) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), 0))).unwrap();
    socket.connect(front.address()).await.unwrap()
}

/// How a connection that was refused looks to its client: an end or a reset, and not a byte.
async fn is_refused(mut client: TcpStream) -> bool {
    matches!(within(client.read(&mut [0; 1])).await, Ok(0) | Err(_))
}

/// Waits until so many connections are left.
async fn open(front: &Front, count: u64) {
    within(async {
        while front.status().open != count {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn serving(config: FrontConfig) -> Front {
    let front = front(config);
    front.retarget(Some((SlotName::A, slot_of_lines(SlotName::A).await))).await;
    front
}

#[tokio::test]
async fn a_peer_over_its_cap_is_refused_and_others_are_served() {
    let front = serving(FrontConfig { max_per_peer: 2, ..FrontConfig::default() }).await;
    let mut lines = front.refusals();
    let mut greedy = [client_at(2, &front).await, client_at(2, &front).await].map(BufStream::new);
    for client in &mut greedy {
        assert_eq!(within(ask(client, "mine")).await.as_deref(), Some("a mine"));
    }
    for _ in 0..3 {
        assert!(is_refused(client_at(2, &front).await).await);
    }
    let mut other = BufStream::new(client_at(3, &front).await);
    assert_eq!(within(ask(&mut other, "hello")).await.as_deref(), Some("a hello"));
    let status = front.status();
    assert_eq!(status.refused_by, Refused { peer_cap: 3, ..Refused::default() });
    assert_eq!((status.open, status.refused, status.limits.per_peer), (3, 3, 2));
    let line = within(lines.recv()).await.unwrap();
    assert_eq!(line, "refused a client: 127.0.0.2 has max_connections_per_peer open");
    // Its place is given back with the connection, and not before.
    let [leaving, staying] = greedy;
    drop(leaving);
    open(&front, 2).await;
    let mut again = BufStream::new(client_at(2, &front).await);
    assert_eq!(within(ask(&mut again, "back")).await.as_deref(), Some("a back"));
    drop(staying);
}

#[tokio::test]
async fn a_client_over_the_total_cap_is_refused_once_nobody_has_left_for_long_enough() {
    let config = FrontConfig {
        max_connections: 1,
        max_per_peer: 1,
        park_limit: Duration::from_millis(50),
        ..FrontConfig::default()
    };
    let front = serving(config).await;
    let mut first = BufStream::new(client_at(2, &front).await);
    assert_eq!(within(ask(&mut first, "one")).await.as_deref(), Some("a one"));
    assert!(is_refused(client_at(3, &front).await).await);
    assert_eq!(front.status().refused_by, Refused { total_cap: 1, ..Refused::default() });
    assert_eq!(within(ask(&mut first, "two")).await.as_deref(), Some("a two"));
    drop(first);
    // Whoever comes now may be turned away a last time, by a front that has not seen the other leave.
    let mut served = None;
    while served.is_none() {
        served = within(ask(&mut BufStream::new(client_at(3, &front).await), "three")).await;
    }
    assert_eq!(served.as_deref(), Some("a three"));
}

#[tokio::test]
async fn a_parked_flood_leaves_places_to_those_who_are_served() {
    let config = FrontConfig { max_connections: 4, max_parked: 2, ..FrontConfig::default() };
    let front = serving(config).await;
    let mut old = BufStream::new(client_at(2, &front).await);
    assert_eq!(within(ask(&mut old, "before")).await.as_deref(), Some("a before"));
    front.retarget(None).await;
    let waiting = [client_at(3, &front).await, client_at(3, &front).await];
    parked(&front, 2).await;
    for _ in 0..8 {
        assert!(is_refused(client_at(3, &front).await).await);
    }
    let status = front.status();
    assert_eq!(status.refused_by, Refused { parked_cap: 8, ..Refused::default() });
    assert_eq!(status.parked, 2);
    open(&front, 3).await;
    assert_eq!(within(ask(&mut old, "during")).await.as_deref(), Some("a during"));
    // No restart, no order: with the slot they are served.
    front.retarget(Some((SlotName::B, slot_of_lines(SlotName::B).await))).await;
    for client in waiting {
        assert_eq!(within(ask(&mut BufStream::new(client), "after")).await.as_deref(), Some("b after"));
    }
    assert_eq!(
        within(ask(&mut BufStream::new(client_at(3, &front).await), "new")).await.as_deref(),
        Some("b new")
    );
}

#[tokio::test]
async fn a_client_that_would_take_the_daemons_own_descriptors_is_refused() {
    let config = FrontConfig { descriptor_line: 0, ..FrontConfig::default() };
    let front = serving(config).await;
    assert!(is_refused(client_at(2, &front).await).await);
    let status = front.status();
    assert_eq!((status.refused_by, status.open), (Refused { descriptors: 1, ..Refused::default() }, 0));
    let highest = client_at(2, &front).await.as_raw_fd();
    assert!(highest < Descriptors::of_this_process().line(), "an ordinary client stays below the line");
}

#[tokio::test]
async fn a_hello_that_comes_byte_by_byte_and_never_ends_holds_up_nobody() {
    let front = serving(FrontConfig::default()).await;
    let hello = crate::front::hello::tests::client_hello(&["h2"]);
    let mut slow = Vec::new();
    for _ in 0..32 {
        slow.push(client_at(2, &front).await);
    }
    let mut polite = BufStream::new(client_at(3, &front).await);
    for byte in &hello[..hello.len() - 1] {
        for client in &mut slow {
            client.write_all(&[*byte]).await.unwrap();
        }
        assert_eq!(within(ask(&mut polite, "still here")).await.as_deref(), Some("a still here"));
    }
    assert_eq!(front.status().per_slot[0].open, 33);
    drop(slow);
    open(&front, 1).await;
}

#[tokio::test]
async fn resets_of_a_hundred_clients_leave_nothing() {
    let front = serving(FrontConfig::default()).await;
    let mut polite = BufStream::new(client_at(3, &front).await);
    for round in 0..10 {
        for _ in 0..10 {
            let mut client = client_at(2, &front).await;
            client.write_all(b"a question that nobody waits for\n").await.unwrap();
            client.set_zero_linger().unwrap();
        }
        let line = format!("round {round}");
        assert_eq!(within(ask(&mut polite, &line)).await, Some(format!("a {line}")));
    }
    open(&front, 1).await;
    assert_eq!(front.status().refused, 0);
}

#[tokio::test]
async fn a_client_that_never_reads_its_answer_is_ended() {
    let keepalive = Keepalive { user_timeout: Duration::from_secs(1), ..Keepalive::default() };
    let (front, listener) = front_of(SlotName::A, FrontConfig { keepalive, ..FrontConfig::default() }).await;
    let (client, mut server) = joined(&front, &listener).await;
    let answer = vec![7; 1 << 16];
    within(async { while server.write_all(&answer).await.is_ok() {} }).await;
    open(&front, 0).await;
    drop(client);
}
