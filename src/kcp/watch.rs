//! One Kubernetes watch over HTTP/1.1, event by event. The shared HTTPS client reads whole answers; a watch has no end.

use crate::kcp::material::Material;
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};
use tokio_util::task::AbortOnDropHandle;

/// More than one event of a canary ever has; a server that sends this much without a line break is confused.
const LONGEST_EVENT: usize = 1 << 20;

/// The watch ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Watch {
    address: SocketAddr,
    body: Incoming,
    unread: Vec<u8>,
    _connection: AbortOnDropHandle<()>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Event {
    #[serde(rename = "type")]
    pub kind: String,
    pub object: Object,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Object {
    pub metadata: Metadata,
    /// Of the Status in an `ERROR` event.
    pub message: String,
}

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Metadata {
    pub uid: String,
    #[serde(rename = "resourceVersion")]
    pub resource_version: String,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
    #[error("the shared certificate cannot be used: {0}")]
    Certificate(String),
    #[error("no connection to {address}: {source}")]
    Connect { address: SocketAddr, source: std::io::Error },
    #[error("the watch at {address} broke: {source}")]
    Broken { address: SocketAddr, source: hyper::Error },
    #[error("the watch at {address} was answered with HTTP {status}")]
    Refused { address: SocketAddr, status: StatusCode },
    #[error("the watch sent something that is not an event")]
    NotAnEvent,
}

impl Watch {
    /// Resolves once the server has sent its header: from then on nothing that happens is missed. The caller holds the
    /// deadline. Cancel-safe.
    pub(crate) async fn open(set: &Material, address: SocketAddr, path: &str) -> Result<Self, WatchError> {
        let connect = |source| WatchError::Connect { address, source };
        let broken = |source| WatchError::Broken { address, source };
        let tls = TlsConnector::from(Arc::new(tls_config(set.trusted())?));
        let stream = TcpStream::connect(address).await.map_err(connect)?;
        let stream =
            tls.connect(ServerName::IpAddress(address.ip().into()), stream).await.map_err(connect)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        let connection = AbortOnDropHandle::new(tokio::spawn(async move {
            // Its error reaches the reader of the body as well.
            let _ = connection.await;
        }));
        let request = Request::get(path)
            .header("host", address.to_string())
            .header("authorization", set.token().bearer())
            .body(Empty::<Bytes>::new())
            .map_err(|error| WatchError::Certificate(error.to_string()))?;
        let answer = sender.send_request(request).await.map_err(broken)?;
        if answer.status() != StatusCode::OK {
            return Err(WatchError::Refused { address, status: answer.status() });
        }
        Ok(Self { address, body: answer.into_body(), unread: Vec::new(), _connection: connection })
    }

    /// The next event; `None` when the server has ended the watch. Cancel-safe: nothing read is lost.
    pub(crate) async fn next(&mut self) -> Result<Option<Event>, WatchError> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                return serde_json::from_slice(&line).map(Some).map_err(|_| WatchError::NotAnEvent);
            }
            if self.unread.len() > LONGEST_EVENT {
                return Err(WatchError::NotAnEvent);
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(source)) => return Err(WatchError::Broken { address: self.address, source }),
                Some(Ok(frame)) => self.unread.extend(frame.data_ref().into_iter().flatten()),
            }
        }
    }
}

fn tls_config(certificate_pem: &[u8]) -> Result<ClientConfig, WatchError> {
    let unusable = |error: &dyn std::fmt::Display| WatchError::Certificate(error.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(certificate_pem) {
        roots.add(certificate.map_err(|error| unusable(&error))?).map_err(|error| unusable(&error))?;
    }
    Ok(ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&error))?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
