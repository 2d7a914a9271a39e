//! One small HTTPS client for probes and logins: a private CA, an optional client certificate, a deadline per request.

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

/// Why a request has no answer. Never holds a header or a body: they carry tokens.
#[derive(Debug, thiserror::Error)]
pub enum HttpsError {
    #[error("the {what} is not usable: {reason}")]
    Material { what: &'static str, reason: String },
    #[error("{url}: {reason}")]
    Request { url: String, reason: String },
    #[error("{url}: no answer within {} ms", .deadline.as_millis())]
    Deadline { url: String, deadline: Duration },
}

/// Largest answer that is read, in bytes: probes and logins are small, a confused server is not.
const LARGEST_ANSWER: usize = 4 << 20;

/// Reuses connections; cheap to clone.
#[derive(Debug, Clone)]
pub struct Https {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

impl Https {
    /// Trusts exactly the certificates in `ca_pem`; presents `identity` (certificate chain and key, PEM) where given.
    pub fn new(ca_pem: &[u8], identity: Option<(&[u8], &[u8])>) -> Result<Self, HttpsError> {
        let material = |what: &'static str| move |error: String| HttpsError::Material { what, reason: error };
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca_pem) {
            let certificate = certificate.map_err(|e| material("CA certificate")(e.to_string()))?;
            roots.add(certificate).map_err(|e| material("CA certificate")(e.to_string()))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| material("TLS provider")(e.to_string()))?
            .with_root_certificates(roots);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let chain = CertificateDer::pem_slice_iter(chain)
                    .collect::<Result<Vec<_>, _>>()
                    .map_err(|e| material("client certificate")(e.to_string()))?;
                let key =
                    PrivateKeyDer::from_pem_slice(key).map_err(|e| material("client key")(e.to_string()))?;
                builder
                    .with_client_auth_cert(chain, key)
                    .map_err(|e| material("client certificate")(e.to_string()))?
            }
        };
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().build();
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector) })
    }

    /// One request. Cancel-safe: dropping it closes the connection.
    pub async fn send(
        &self,
        method: Method,
        url: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
        deadline: Duration,
    ) -> Result<(StatusCode, Bytes), HttpsError> {
        let failed = |reason: String| HttpsError::Request { url: url.to_owned(), reason };
        let mut request = Request::builder().method(method).uri(url);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body))).map_err(|e| failed(e.to_string()))?;
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|e| failed(root_cause(&e)))?;
            let status = answer.status();
            let body = http_body_util::Limited::new(answer.into_body(), LARGEST_ANSWER)
                .collect()
                .await
                .map_err(|e| failed(e.to_string()))?;
            Ok((status, body.to_bytes()))
        };
        tokio::time::timeout(deadline, exchange)
            .await
            .map_err(|_| HttpsError::Deadline { url: url.to_owned(), deadline })?
    }

    /// GET without headers.
    pub async fn get(&self, url: &str, deadline: Duration) -> Result<(StatusCode, Bytes), HttpsError> {
        self.send(Method::GET, url, &[], Vec::new(), deadline).await
    }
}

/// hyper's own text is "client error (Connect)"; what an operator needs is the innermost source.
fn root_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}
