//! The front's way to its backend: one HTTP/2 connection, made anew when it breaks, on which the front vouches for a
//! user by header. It never retries a request: whether one was executed is the client's question to ask.

use super::body::{self, Body};
use super::certificate::BackendPki;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

pub(super) const USER_HEADER: &str = "x-remote-user";
pub(super) const GROUP_HEADER: &str = "x-remote-group";
/// Anything the backend lets do everything; it decides nothing here, the front has decided already.
const GROUP: HeaderValue = HeaderValue::from_static("system:masters");
/// Whoever lists the managers of an object must see kcp.
const AGENT: HeaderValue = HeaderValue::from_static("kcp/v1.36.0 (stand-in)");
/// Per watch: one whose client stalls may hold back this much, and the connection has room for a thousand of them.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = 256 << 20;
/// The socket of a starting backend accepts long before it speaks TLS.
const CONNECT_DEADLINE: Duration = Duration::from_secs(5);
/// Largest answer the front reads for itself.
const LARGEST: usize = 16 << 20;

type Driver = http2::Connection<TokioIo<TlsStream<TcpStream>>, Body, TokioExecutor>;

#[derive(Debug, thiserror::Error)]
pub(super) enum UpstreamError {
    #[error("the PKI of the backend is not usable: {0}")]
    Material(String),
    #[error("the backend does not answer: {0}")]
    Connect(String),
    #[error("the backend broke off: {0}")]
    Request(String),
}

pub(super) struct Upstream {
    address: SocketAddr,
    tls: TlsConnector,
    connection: Mutex<Option<SendRequest<Body>>>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Upstream {
    pub(super) fn new(pki: &BackendPki, address: SocketAddr) -> Result<Self, UpstreamError> {
        let material = |error: &dyn std::fmt::Display| UpstreamError::Material(error.to_string());
        let certificate =
            |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| material(&e));
        let mut roots = RootCertStore::empty();
        roots.add(certificate(&pki.ca)?).map_err(|e| material(&e))?;
        let key = PrivateKeyDer::from_pem_slice(pki.client.key.as_bytes()).map_err(|e| material(&e))?;
        let mut tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| material(&e))?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate(&pki.client.chain)?], key)
            .map_err(|e| material(&e))?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        Ok(Self { address, tls: TlsConnector::from(Arc::new(tls)), connection: Mutex::new(None) })
    }

    /// Asks the backend as `user`. `path` is path and query. Cancel-safe: dropping the answer resets the stream.
    pub(super) async fn send(
        &self,
        user: &str,
        path: &str,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let failed = |error: &dyn std::fmt::Display| UpstreamError::Request(error.to_string());
        *request.uri_mut() = Uri::builder()
            .scheme("https")
            .authority(self.address.to_string())
            .path_and_query(path)
            .build()
            .map_err(|e| failed(&e))?;
        *request.version_mut() = hyper::Version::HTTP_2;
        let headers = request.headers_mut();
        headers.insert(
            HeaderName::from_static(USER_HEADER),
            HeaderValue::from_str(user).map_err(|e| failed(&e))?,
        );
        headers.insert(HeaderName::from_static(GROUP_HEADER), GROUP);
        let mut sender = self.sender().await?;
        sender.ready().await.map_err(|e| failed(&e))?;
        sender.send_request(request).await.map_err(|e| failed(&e))
    }

    /// The front's own GET, read whole. The caller holds the deadline.
    pub(super) async fn get(&self, path: &str) -> Result<(StatusCode, Bytes), UpstreamError> {
        self.call(Method::GET, path, None).await
    }

    /// The front's own request, read whole. The caller holds the deadline.
    pub(super) async fn call(
        &self,
        method: Method,
        path: &str,
        json: Option<&serde_json::Value>,
    ) -> Result<(StatusCode, Bytes), UpstreamError> {
        let mut request = Request::new(body::whole(json.map(ToString::to_string).unwrap_or_default()));
        *request.method_mut() = method;
        request.headers_mut().insert(USER_AGENT, AGENT);
        if json.is_some() {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let answer = self.send("system:apiserver", path, request).await?;
        let status = answer.status();
        let bytes = Limited::new(answer.into_body(), LARGEST)
            .collect()
            .await
            .map_err(|error| UpstreamError::Request(error.to_string()))?;
        Ok((status, bytes.to_bytes()))
    }

    async fn sender(&self) -> Result<SendRequest<Body>, UpstreamError> {
        let failed = |error: &dyn std::fmt::Display| UpstreamError::Connect(error.to_string());
        let mut connection = self.connection.lock().await;
        if let Some(sender) = connection.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        let opened = tokio::time::timeout(CONNECT_DEADLINE, self.connect()).await;
        let (sender, driver) = opened.map_err(|e| failed(&e))?.map_err(|e| failed(&e))?;
        // The driver ends with the connection; every request on it learns so by its own error.
        tokio::spawn(driver);
        Ok(connection.insert(sender).clone())
    }

    async fn connect(&self) -> Result<(SendRequest<Body>, Driver), Box<dyn std::error::Error + Send + Sync>> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST));
        let stream = self.tls.connect(name, stream).await?;
        Ok(http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(TokioIo::new(stream))
            .await?)
    }
}
