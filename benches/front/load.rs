//! A server and its clients. A request is the length it wants, in four bytes; every answer begins with the server's name. The
//! server ends a connection that is to serve once, as HTTP servers do: the ephemeral port is free again at once then.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::task::JoinSet;

/// Set in a length: the last request of its connection.
const LAST: u32 = 1 << 31;

pub(crate) fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// Serves on a thread of its own as long as the process lives.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
}

impl Server {
    pub(crate) fn new(name: [u8; 1]) -> Self {
        let (bound, told) = mpsc::channel();
        thread::spawn(move || {
            Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
                let listener = TcpListener::bind(any_port()).await.unwrap();
                bound.send(listener.local_addr().unwrap()).unwrap();
                while let Ok((client, _)) = listener.accept().await {
                    tokio::spawn(serve(client, name));
                }
            });
        });
        Self { address: told.recv().unwrap() }
    }
}

async fn serve(mut client: tokio::net::TcpStream, name: [u8; 1]) {
    let mut length = [0; 4];
    let mut answer = Vec::new();
    client.set_nodelay(true).unwrap();
    while client.read_exact(&mut length).await.is_ok() {
        let length = u32::from_le_bytes(length);
        answer.resize((length & !LAST) as usize, name[0]);
        if client.write_all(&answer).await.is_err() || length & LAST != 0 {
            return;
        }
    }
}

/// Clients in closed loops, all on one thread.
pub(crate) struct Clients {
    pub(crate) way: SocketAddr,
    pub(crate) count: usize,
    /// Each request on a connection of its own.
    pub(crate) once: bool,
    pub(crate) answer: u32,
}

impl Clients {
    /// How long each answer took that came in time.
    pub(crate) fn run(&self, turn: Duration) -> Vec<Duration> {
        let Self { way, once, answer, .. } = *self;
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let end = Instant::now() + turn;
            let mut clients: JoinSet<_> =
                (0..self.count).map(|_| ask_until(end, way, once, answer)).collect();
            let mut took = Vec::new();
            while let Some(more) = clients.join_next().await {
                took.extend(more.unwrap());
            }
            took
        })
    }
}

async fn ask_until(end: Instant, way: SocketAddr, once: bool, answer: u32) -> Vec<Duration> {
    let mut into = vec![0; answer as usize];
    let mut kept = None;
    let mut took = Vec::new();
    loop {
        let from = Instant::now();
        if from >= end {
            return took;
        }
        let mut stream = match kept.take() {
            Some(stream) => stream,
            None => tokio::net::TcpStream::connect(way).await.unwrap(),
        };
        let request = if once { answer | LAST } else { answer };
        stream.write_all(&request.to_le_bytes()).await.unwrap();
        stream.read_exact(&mut into).await.unwrap();
        took.push(from.elapsed());
        if once {
            assert_eq!(stream.read(&mut into).await.unwrap(), 0);
        } else {
            kept = Some(stream);
        }
    }
}

/// A connection that has had one answer, and the name in it.
pub(crate) fn answered(way: SocketAddr) -> (TcpStream, [u8; 1]) {
    let mut stream = TcpStream::connect(way).unwrap();
    let mut name = [0; 1];
    stream.write_all(&1_u32.to_le_bytes()).unwrap();
    stream.read_exact(&mut name).unwrap();
    (stream, name)
}
