//! A small HTTPS server for tests: one closure answers every request, whole or chunk by chunk.

use crate::kcp::fixture::Fixture;
use futures::StreamExt;
use futures::channel::mpsc::UnboundedReceiver;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};

pub(crate) struct Asked {
    pub method: Method,
    /// With the query.
    pub path: String,
    pub authorization: Option<String>,
    pub body: Bytes,
}

pub(crate) struct Answer {
    status: u16,
    body: UnsyncBoxBody<Bytes, Infallible>,
}

impl Answer {
    pub(crate) fn text(status: u16, body: &str) -> Self {
        Self { status, body: Full::new(Bytes::from(body.to_owned())).boxed_unsync() }
    }

    pub(crate) fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::text(status, &body.to_string())
    }

    /// The header goes out at once; the body is whatever arrives, and ends when the sender is dropped.
    pub(crate) fn chunks(chunks: UnboundedReceiver<String>) -> Self {
        let frames = chunks.map(|chunk| Ok(Frame::data(Bytes::from(chunk))));
        Self { status: 200, body: StreamBody::new(frames).boxed_unsync() }
    }
}

/// Ends with the test's runtime.
pub(crate) struct TestServer {
    pub address: SocketAddr,
}

impl TestServer {
    pub(crate) async fn start(
        set: &Fixture,
        answer: impl Fn(Asked) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let chain = CertificateDer::pem_slice_iter(&set.certificate).collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(&set.key).unwrap();
        let tls = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let answer = Arc::new(answer);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, answer) = (acceptor.clone(), answer.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| respond(request, answer.clone()));
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service);
                    // A client that hangs up is part of some tests.
                    let _ = connection.await;
                });
            }
        });
        Self { address }
    }
}

async fn respond(
    request: Request<Incoming>,
    answer: Arc<impl Fn(Asked) -> Answer>,
) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let authorization = head.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
    let asked = Asked {
        method: head.method,
        path: head.uri.path_and_query().unwrap().to_string(),
        authorization,
        body: body.collect().await?.to_bytes(),
    };
    let answer = answer(asked);
    let mut response = Response::new(answer.body);
    *response.status_mut() = answer.status.try_into().unwrap();
    Ok(response)
}
