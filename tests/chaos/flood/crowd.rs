//! A crowd of clients that mean harm, in a process of its own: it has descriptors enough, whatever the daemon has.
//!
//! It lives until its standard input ends, and says `up` once every client has tried to connect.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::Semaphore;

pub const ROLE: &str = "crowd";
/// From its end to a client's next try.
const AGAIN: Duration = Duration::from_secs(3);
/// From one byte of a hello to the next.
const BYTE: Duration = Duration::from_millis(200);
/// From one reset to the next, of one client.
const RESET: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Connects, and never says a word.
    Silent,
    /// Sends a TLS hello byte by byte, and never its end.
    Slow,
    /// Asks, and resets at once; again and again.
    Reset,
}

impl fmt::Display for Manner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Silent => "silent",
            Self::Slow => "slow",
            Self::Reset => "reset",
        })
    }
}

impl FromStr for Manner {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Silent, Self::Slow, Self::Reset]
            .into_iter()
            .find(|manner| manner.to_string() == text)
            .ok_or_else(|| format!("{text} is no manner"))
    }
}

/// `FRONT NETWORK ADDRESSES CLIENTS MANNER`: so many clients, spread over so many addresses of 127.NETWORK.0.0/16.
pub fn main(words: &[String]) -> ExitCode {
    let [front, network, addresses, clients, manner] = words else { panic!("{words:?}") };
    let (front, manner): (SocketAddr, Manner) = (front.parse().unwrap(), manner.parse().unwrap());
    let (network, addresses, clients): (u8, usize, usize) =
        (network.parse().unwrap(), addresses.parse().unwrap(), clients.parse().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let tried = Arc::new(Semaphore::new(0));
        for client in 0..clients {
            let [high, low] = u16::try_from(client % addresses + 1).unwrap().to_be_bytes();
            let from = SocketAddr::from((Ipv4Addr::new(127, network, high, low), 0));
            tokio::spawn(live(from, front, manner, Arc::clone(&tried)));
        }
        let all = u32::try_from(clients).unwrap();
        tried.acquire_many(all).await.unwrap().forget();
        println!("up");
        let _ = tokio::io::stdin().read(&mut [0; 1]).await;
    });
    ExitCode::SUCCESS
}

async fn live(from: SocketAddr, front: SocketAddr, manner: Manner, tried: Arc<Semaphore>) {
    let mut tried = Some(tried);
    loop {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_reuseaddr(true).unwrap();
        let connecting = async {
            socket.bind(from)?;
            socket.connect(front).await
        };
        // The kernel's queue may be full for as long as the front is: that is a try as well.
        let connected = tokio::time::timeout(AGAIN, connecting).await;
        if let Some(tried) = tried.take() {
            tried.add_permits(1);
        }
        if let Ok(Ok(stream)) = connected {
            behave(stream, manner).await;
        }
        tokio::time::sleep(if manner == Manner::Reset { RESET } else { AGAIN }).await;
    }
}

/// Until the front has had enough.
async fn behave(mut stream: TcpStream, manner: Manner) {
    match manner {
        Manner::Silent => while matches!(stream.read(&mut [0; 64]).await, Ok(1..)) {},
        Manner::Slow => {
            // A handshake record that promises 500 bytes.
            let hello = [22, 3, 1, 1, 244, 1, 0, 1, 240].into_iter().chain(std::iter::repeat_n(7, 400));
            for byte in hello {
                if stream.write_all(&[byte]).await.is_err() {
                    return;
                }
                tokio::time::sleep(BYTE).await;
            }
            let _ = stream.read(&mut [0; 64]).await;
        }
        Manner::Reset => {
            let _ = stream.write_all(b"get lease\n").await;
            stream.set_zero_linger().unwrap();
        }
    }
}
