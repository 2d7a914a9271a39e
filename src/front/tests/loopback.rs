//! What the socket tests stand on: a front on a free port, slots that answer lines, clients that ask them.

use crate::front::{Front, FrontConfig};
use berth_actors::host::Dataplane;
use berth_actors::identity::SlotName;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};

/// Far above what anything on loopback takes, even on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

pub(super) fn front(config: FrontConfig) -> Front {
    Front::bind(any_port(), config).unwrap()
}

/// A front in front of one slot the test plays itself.
pub(super) async fn front_of(slot: SlotName, config: FrontConfig) -> (Front, TcpListener) {
    let (front, listener) = (front(config), TcpListener::bind(any_port()).await.unwrap());
    front.retarget(Some((slot, listener.local_addr().unwrap()))).await;
    (front, listener)
}

/// A client and its server, joined.
pub(super) async fn joined(front: &Front, listener: &TcpListener) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect(front.address()).await.unwrap();
    let (server, _) = within(listener.accept()).await.unwrap();
    (client, server)
}

/// A slot that answers each line with its name and the line.
pub(super) async fn slot_of_lines(name: SlotName) -> SocketAddr {
    let listener = TcpListener::bind(any_port()).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_lines(BufStream::new(stream), name));
        }
    });
    address
}

pub(super) async fn answer_lines(mut stream: impl AsyncBufReadExt + AsyncWriteExt + Unpin, name: SlotName) {
    let mut line = String::new();
    while matches!(stream.read_line(&mut line).await, Ok(1..)) {
        let answer = format!("{name} {line}");
        if stream.write_all(answer.as_bytes()).await.is_err() || stream.flush().await.is_err() {
            return;
        }
        line.clear();
    }
    let _ = stream.shutdown().await;
}

/// One line there and back; `None` when the connection ended instead.
pub(super) async fn ask(
    stream: &mut (impl AsyncBufReadExt + AsyncWriteExt + Unpin),
    line: &str,
) -> Option<String> {
    stream.write_all(format!("{line}\n").as_bytes()).await.ok()?;
    stream.flush().await.ok()?;
    let mut answer = String::new();
    stream.read_line(&mut answer).await.ok()?;
    answer.ends_with('\n').then(|| answer.trim_end().to_owned())
}

pub(super) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(PATIENCE, future).await.expect("nothing happened in time")
}

/// Waits until so many clients are parked.
pub(super) async fn parked(front: &Front, count: u64) {
    let mut parked = front.engine.shared.parked.subscribe();
    within(parked.wait_for(|parked| *parked == count)).await.unwrap();
}
