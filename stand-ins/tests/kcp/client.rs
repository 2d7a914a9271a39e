//! A small HTTPS client: a fresh HTTP/1.1 connection per request, an HTTP/2 one on demand, and watches line by line.

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::{Method, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

pub const CONFIG_MAPS: &str = "/clusters/root/api/v1/namespaces/default/configmaps";
pub const LEASE: &str =
    "/clusters/system:admin/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kcp-controllers";

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone)]
pub struct Client {
    port: u16,
    roots: Arc<RootCertStore>,
    token: Option<String>,
}

pub struct Watch {
    body: Incoming,
    rest: Vec<u8>,
}

impl Client {
    pub fn new(port: u16, ca: &[u8], token: Option<&str>) -> Self {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca) {
            roots.add(certificate.unwrap()).unwrap();
        }
        Self { port, roots: Arc::new(roots), token: token.map(str::to_owned) }
    }

    pub fn with_token(&self, token: Option<&str>) -> Self {
        Self { token: token.map(str::to_owned), ..self.clone() }
    }

    async fn connect(&self, alpn: &[u8]) -> Result<TlsStream<TcpStream>, Failure> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        config.alpn_protocols = vec![alpn.to_vec()];
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let name = ServerName::try_from("127.0.0.1")?;
        Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
    }

    fn request(&self, method: Method, path: &str, json: &str) -> Request<Full<Bytes>> {
        let kind = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://127.0.0.1:{}{path}", self.port))
            .header("host", "127.0.0.1")
            .header("content-type", kind);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        request.body(Full::new(Bytes::from(json.to_owned()))).unwrap()
    }

    async fn open(&self, method: Method, path: &str, json: &str) -> Result<Response<Incoming>, Failure> {
        let (mut sender, driver) = http1::handshake(TokioIo::new(self.connect(b"http/1.1").await?)).await?;
        tokio::spawn(driver);
        Ok(sender.send_request(self.request(method, path, json)).await?)
    }

    pub async fn send(&self, method: Method, path: &str, json: &str) -> Result<(u16, String), Failure> {
        let answer = self.open(method, path, json).await?;
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await?.to_bytes();
        Ok((status, String::from_utf8(body.to_vec())?))
    }

    pub async fn get(&self, path: &str) -> Result<(u16, String), Failure> {
        self.send(Method::GET, path, "").await
    }

    pub async fn object(&self, path: &str) -> serde_json::Value {
        serde_json::from_str(&self.get(path).await.unwrap().1).unwrap()
    }

    pub async fn create(&self, name: &str) {
        let object =
            format!("{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"{name}\"}}}}");
        let (status, body) = self.send(Method::POST, CONFIG_MAPS, &object).await.unwrap();
        assert_eq!(status, 201, "{body}");
    }

    /// Resolves with the head of the answer: the server says 200 before there is an event.
    pub async fn watch(&self, path: &str) -> Watch {
        let answer = self.open(Method::GET, &format!("{path}?watch=true"), "").await.unwrap();
        assert_eq!(answer.status(), 200);
        Watch { body: answer.into_body(), rest: Vec::new() }
    }

    /// Asks on one HTTP/2 connection until the server wants it gone; how many of `limit` requests it answered.
    pub async fn http2_until_goaway(&self, limit: usize) -> usize {
        let stream = TokioIo::new(self.connect(b"h2").await.unwrap());
        let (mut sender, driver) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        let driver = tokio::spawn(driver);
        for answered in 0..limit {
            if sender.ready().await.is_err() {
                driver.await.unwrap().expect("GOAWAY without an error");
                return answered;
            }
            let request = self.request(Method::GET, CONFIG_MAPS, "");
            let answer = sender.send_request(request).await.expect("no request is lost");
            assert_eq!(answer.status(), 200);
            answer.into_body().collect().await.unwrap();
        }
        limit
    }

    /// An HTTP/2 connection that was used once; resolves when the server has ended it, `true` for a clean end.
    pub async fn idle_http2(&self) -> impl Future<Output = bool> + use<> {
        let stream = TokioIo::new(self.connect(b"h2").await.unwrap());
        let (mut sender, driver) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
        let driver = tokio::spawn(driver);
        let answer = sender.send_request(self.request(Method::GET, "/readyz", "")).await.unwrap();
        answer.into_body().collect().await.unwrap();
        async move {
            let end = driver.await.unwrap();
            drop(sender);
            end.is_ok()
        }
    }
}

impl Watch {
    /// The next event; `None` at a clean end, an error at any other.
    pub async fn next(&mut self) -> Result<Option<serde_json::Value>, Failure> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                return Ok(Some(serde_json::from_slice(&line)?));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            self.rest.extend(frame?.into_data().unwrap_or_default());
        }
    }
}
