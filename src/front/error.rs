//! Why the front could not be opened.

use std::io;
use std::net::SocketAddr;

#[derive(Debug, thiserror::Error)]
pub enum FrontError {
    /// Somebody else listens there.
    #[error("the front's address {addr} is taken by {}: stop it or configure another address",
        .holder.as_deref().unwrap_or("another process"))]
    Taken { addr: SocketAddr, holder: Option<String> },
    #[error("the front cannot listen on {addr}: {source}")]
    Bind { addr: SocketAddr, source: io::Error },
    #[error("the front's listener is not usable: {source}")]
    Listener { source: io::Error },
    #[error("the front's threads cannot start: {source}")]
    Threads { source: io::Error },
}

impl FrontError {
    /// Names who holds a taken address, where `holder_of` knows (`pid 812 (kcp)`).
    #[must_use]
    pub fn with_holder(self, holder_of: impl FnOnce(SocketAddr) -> Option<String>) -> Self {
        match self {
            Self::Taken { addr, holder: None } => Self::Taken { addr, holder: holder_of(addr) },
            other => other,
        }
    }
}
