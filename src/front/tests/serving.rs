//! Accepting, dialling, parking and relaying over real sockets.

use super::loopback::{any_port, ask, front, front_of, joined, parked, slot_of_lines, within};
use crate::front::crew::SLACK;
use crate::front::{Front, FrontConfig, FrontError};
use berth_actors::host::Dataplane;
use berth_actors::identity::SlotName;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpSocket, TcpStream};

async fn rest_of(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    within(stream.read_to_end(&mut bytes)).await.expect("an orderly end, not a reset");
    bytes
}

#[tokio::test]
async fn a_half_close_is_relayed_both_ways() {
    let (front, listener) = front_of(SlotName::A, FrontConfig::default()).await;
    for client_first in [true, false] {
        let (client, server) = joined(&front, &listener).await;
        let (mut first, mut second) = if client_first { (client, server) } else { (server, client) };
        first.write_all(b"all I have").await.unwrap();
        first.shutdown().await.unwrap();
        assert_eq!(rest_of(&mut second).await, b"all I have");
        second.write_all(b"and the answer").await.unwrap();
        second.shutdown().await.unwrap();
        assert_eq!(rest_of(&mut first).await, b"and the answer");
    }
}

#[tokio::test]
async fn large_bodies_arrive_whole_in_both_directions_at_once() {
    let (front, listener) = front_of(SlotName::A, FrontConfig::default()).await;
    let (client, server) = joined(&front, &listener).await;
    let body: Vec<u8> =
        (0..8_u32 << 20).map(|at| (at.wrapping_mul(2_654_435_761) >> 24).to_le_bytes()[0]).collect();
    let exchange = |stream: TcpStream| {
        let body = body.clone();
        tokio::spawn(async move {
            let (mut read, mut write) = stream.into_split();
            let sending = async {
                write.write_all(&body).await.unwrap();
                write.shutdown().await.unwrap();
            };
            let mut got = Vec::new();
            let ((), count) = tokio::join!(sending, read.read_to_end(&mut got));
            count.unwrap();
            got == body
        })
    };
    let (there, back) = (exchange(client), exchange(server));
    assert!(within(there).await.unwrap() && within(back).await.unwrap());
}

#[tokio::test]
async fn a_refusing_target_is_dialled_again_until_it_accepts() {
    // Bound but not listening: the port is ours and refuses.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(any_port()).unwrap();
    let front = front(FrontConfig::default());
    front.retarget(Some((SlotName::A, socket.local_addr().unwrap()))).await;
    let mut client = TcpStream::connect(front.address()).await.unwrap();
    client.write_all(b"patience").await.unwrap();
    parked(&front, 1).await;
    let listener = socket.listen(8).unwrap();
    let (mut server, _) = within(listener.accept()).await.unwrap();
    client.shutdown().await.unwrap();
    assert_eq!(rest_of(&mut server).await, b"patience");
    assert_eq!(front.status().refused, 0);
}

#[tokio::test]
async fn a_client_whose_target_refuses_is_served_by_the_next_target() {
    let refusing = TcpSocket::new_v4().unwrap();
    refusing.bind(any_port()).unwrap();
    let front = front(FrontConfig::default());
    front.retarget(Some((SlotName::A, refusing.local_addr().unwrap()))).await;
    let mut client = BufStream::new(TcpStream::connect(front.address()).await.unwrap());
    parked(&front, 1).await;
    front.retarget(Some((SlotName::B, slot_of_lines(SlotName::B).await))).await;
    assert_eq!(within(ask(&mut client, "hello")).await.as_deref(), Some("b hello"));
}

#[tokio::test]
async fn a_client_without_a_target_is_parked_and_then_served() {
    let front = front(FrontConfig::default());
    let mut client = BufStream::new(TcpStream::connect(front.address()).await.unwrap());
    let early = async {
        parked(&front, 1).await;
        front.retarget(Some((SlotName::A, slot_of_lines(SlotName::A).await))).await;
    };
    let (answer, ()) = within(async { tokio::join!(ask(&mut client, "hello"), early) }).await;
    assert_eq!(answer.as_deref(), Some("a hello"));
    assert_eq!(front.status().parked, 0);
}

#[tokio::test]
async fn the_park_limit_refuses_with_an_end_and_no_reset() {
    let front = front(FrontConfig { park_limit: Duration::from_millis(50), ..FrontConfig::default() });
    let mut client = TcpStream::connect(front.address()).await.unwrap();
    // More than is read while parked: unread bytes at the end would become a reset.
    client.write_all(&vec![7; 100_000]).await.unwrap();
    assert_eq!(rest_of(&mut client).await, b"");
    assert_eq!((front.status().parked, front.status().refused), (0, 1));
}

#[tokio::test]
async fn a_client_that_leaves_while_parked_is_noticed() {
    let front = front(FrontConfig::default());
    let mut client = TcpStream::connect(front.address()).await.unwrap();
    client.write_all(b"a ClientHello").await.unwrap();
    parked(&front, 1).await;
    drop(client);
    parked(&front, 0).await;
    assert_eq!(front.status().refused, 0);
}

#[tokio::test]
async fn over_the_cap_a_client_waits_in_the_kernel_until_another_leaves() {
    let config = FrontConfig { max_connections: 1, ..FrontConfig::default() };
    let front = front(config);
    front.retarget(Some((SlotName::A, slot_of_lines(SlotName::A).await))).await;
    let mut first = BufStream::new(TcpStream::connect(front.address()).await.unwrap());
    assert_eq!(within(ask(&mut first, "one")).await.as_deref(), Some("a one"));
    let mut second = BufStream::new(TcpStream::connect(front.address()).await.unwrap());
    assert_eq!(front.status().per_slot[0].accepted, 1);
    drop(first);
    assert_eq!(within(ask(&mut second, "two")).await.as_deref(), Some("a two"));
    assert_eq!(front.status().per_slot[0].accepted, 2);
}

#[tokio::test]
async fn connections_and_bytes_are_counted_per_slot() {
    let front = front(FrontConfig::default());
    front.retarget(Some((SlotName::A, slot_of_lines(SlotName::A).await))).await;
    let mut first = BufStream::new(TcpStream::connect(front.address()).await.unwrap());
    assert_eq!(within(ask(&mut first, "12345")).await.as_deref(), Some("a 12345"));
    front.retarget(Some((SlotName::B, slot_of_lines(SlotName::B).await))).await;
    let mut second = BufStream::new(TcpStream::connect(front.address()).await.unwrap());
    assert_eq!(within(ask(&mut second, "1")).await.as_deref(), Some("b 1"));
    let [a, b] = <[_; 2]>::try_from(front.status().per_slot).unwrap();
    assert_eq!((a.slot, a.open, a.accepted, a.bytes_in, a.bytes_out), (SlotName::A, 1, 1, 6, 8));
    assert_eq!((b.slot, b.open, b.accepted, b.bytes_in, b.bytes_out), (SlotName::B, 1, 1, 2, 4));
}

#[tokio::test]
async fn a_thousand_connections_in_a_row_all_reach_the_target_of_their_moment() {
    let slots =
        [(SlotName::A, slot_of_lines(SlotName::A).await), (SlotName::B, slot_of_lines(SlotName::B).await)];
    let front = front(FrontConfig::default());
    for number in 0..1000 {
        let (slot, address) = slots[number / 100 % 2];
        if number % 100 == 0 {
            front.retarget(Some((slot, address))).await;
        }
        let mut client = BufStream::new(TcpStream::connect(front.address()).await.unwrap());
        assert_eq!(within(ask(&mut client, "hi")).await, Some(format!("{slot} hi")), "connection {number}");
    }
    let counts: Vec<u64> = front.status().per_slot.iter().map(|slot| slot.accepted).collect();
    assert_eq!(counts, [500, 500]);
}

/// Asks once over each of `clients` and keeps it; what each worker has then.
async fn loads_with(front: &Front, clients: Vec<TcpStream>) -> Vec<usize> {
    let mut served = Vec::new();
    for client in clients {
        let mut client = BufStream::new(client);
        assert_eq!(within(ask(&mut client, "hi")).await.as_deref(), Some("a hi"));
        served.push(client);
    }
    let crew = &front.engine.crew;
    crew.workers().map(|worker| crew.inbox(worker).load()).collect()
}

async fn clients_of(front: &Front, count: usize) -> Vec<TcpStream> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(TcpStream::connect(front.address()).await.unwrap());
    }
    clients
}

#[tokio::test]
async fn no_worker_keeps_a_crowd_for_itself() {
    let front = front(FrontConfig { threads: 3, ..FrontConfig::default() });
    front.retarget(Some((SlotName::A, slot_of_lines(SlotName::A).await))).await;
    let clients = clients_of(&front, 300).await;
    let loads = loads_with(&front, clients).await;
    let [least, most] = [loads.iter().min().unwrap(), loads.iter().max().unwrap()];
    assert!(loads.iter().sum::<usize>() == 300 && most - least <= SLACK + 1, "{loads:?}");
}

#[tokio::test]
async fn those_who_waited_are_dealt_out_evenly() {
    let front = front(FrontConfig { threads: 3, ..FrontConfig::default() });
    let clients = clients_of(&front, 30).await;
    parked(&front, 30).await;
    front.retarget(Some((SlotName::A, slot_of_lines(SlotName::A).await))).await;
    assert_eq!(loads_with(&front, clients).await, [10, 10, 10]);
}

#[tokio::test]
async fn a_taken_address_is_an_error_that_names_it_and_its_holder() {
    let first = front(FrontConfig::default());
    let error = Front::bind(first.address(), FrontConfig::default()).unwrap_err();
    let error = error.with_holder(|_| Some("pid 812 (kcp)".to_owned()));
    assert!(matches!(error, FrontError::Taken { addr, .. } if addr == first.address()));
    let text = error.to_string();
    assert!(text.contains(&first.address().to_string()) && text.contains("pid 812 (kcp)"), "{text}");
}

#[tokio::test]
async fn a_closed_front_cuts_its_clients_and_frees_its_address() {
    let (front, listener) = front_of(SlotName::A, FrontConfig::default()).await;
    let (mut client, _server) = joined(&front, &listener).await;
    let address = front.address();
    front.clone().close();
    assert_eq!(rest_of(&mut client).await, b"");
    assert!(front.listener().unwrap().is_none());
    // The thread that owned the last descriptor may still be ending.
    within(async { while TcpStream::connect(address).await.is_ok() {} }).await;
}

#[tokio::test]
async fn a_successor_accepts_from_the_same_socket_after_the_front_has_closed() {
    let first = front(FrontConfig::default());
    let listener = first.listener().unwrap().unwrap();
    let address = first.address();
    drop(first);
    let mut waiting = BufStream::new(TcpStream::connect(address).await.unwrap());
    let second = Front::from_listener(listener, FrontConfig::default()).unwrap();
    second.retarget(Some((SlotName::B, slot_of_lines(SlotName::B).await))).await;
    assert_eq!(second.address(), address);
    assert_eq!(within(ask(&mut waiting, "still here")).await.as_deref(), Some("b still here"));
}
