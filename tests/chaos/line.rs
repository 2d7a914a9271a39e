//! What stand-ins say to each other: a line, and a line in return.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// A frozen process accepts and never answers.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Socket(PathBuf),
    Port(SocketAddr),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "unix:{}", path.display()),
            Self::Port(address) => write!(f, "tcp:{address}"),
        }
    }
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some(("unix", path)) => Ok(Self::Socket(path.into())),
            Some(("tcp", address)) => address.parse().map(Self::Port).map_err(|error| error.to_string()),
            _ => Err(format!("{text} is no place")),
        }
    }
}

/// Asks once, on a connection of its own.
pub async fn ask(place: &Place, request: &str) -> Result<String, String> {
    let asked = async {
        match place {
            Place::Socket(path) => talk(UnixStream::connect(path).await.map_err(text)?, request).await,
            Place::Port(address) => talk(TcpStream::connect(address).await.map_err(text)?, request).await,
        }
    };
    timeout(PATIENCE, asked).await.unwrap_or_else(|_| Err(format!("{place} accepts and does not answer")))
}

async fn talk(stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> Result<String, String> {
    let mut stream = BufReader::new(stream);
    stream.write_all(format!("{request}\n").as_bytes()).await.map_err(text)?;
    let mut answer = String::new();
    stream.read_line(&mut answer).await.map_err(text)?;
    match answer.strip_suffix('\n') {
        Some(answer) if !answer.starts_with('!') => Ok(answer.to_owned()),
        Some(refusal) => Err(refusal.to_owned()),
        None => Err("it hung up".to_owned()),
    }
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}
