//! The front: accepts, speaks TLS by ALPN, and runs one task per connection until it ends or the shutdown ends it.

use super::certificate::Pair;
use super::klog;
use super::proxy;
use super::state::{Ending, State};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::rustls::{CipherSuite, ServerConfig, crypto::ring};

/// A client that says nothing is not waited for longer.
const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(10);
/// First byte of a TLS record of type handshake.
const HANDSHAKE: u8 = 0x16;
/// Out of file descriptors: accept fails at once and would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const PLAIN_HTTP: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

/// The serving side of TLS, as kcp negotiates it: its cipher order, one session ticket, h2 before http/1.1.
pub(super) fn tls(pair: &Pair, http2: bool) -> Result<ServerConfig, String> {
    let chain = CertificateDer::pem_slice_iter(pair.chain.as_bytes())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| error.to_string())?;
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).map_err(|error| error.to_string())?;
    let mut provider = ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    let mut config = ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .map_err(|error| error.to_string())?;
    config.ignore_client_order = true;
    config.send_tls13_tickets = 1;
    config.alpn_protocols = if http2 { vec![b"h2".to_vec()] } else { Vec::new() };
    config.alpn_protocols.push(b"http/1.1".to_vec());
    Ok(config)
}

/// Runs until the end of the shutdown delay, then closes the listener.
pub(super) async fn serve(listener: TcpListener, tls: ServerConfig, state: Arc<State>) {
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let mut closing = std::pin::pin!(state.reached(Ending::Closing));
    loop {
        // Both arms are cancel-safe: no accepted connection is lost.
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut closing => return,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (acceptor, state) = (acceptor.clone(), Arc::clone(&state));
        tokio::spawn(async move { connection(stream, acceptor, state).await });
    }
}

async fn connection(stream: TcpStream, acceptor: TlsAcceptor, state: Arc<State>) {
    let peer = stream.peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
    let handshake = async {
        stream.set_nodelay(true)?;
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0] != HANDSHAKE {
            let mut stream = stream;
            stream.write_all(PLAIN_HTTP).await?;
            stream.shutdown().await?;
            return Ok(None);
        }
        acceptor.accept(stream).await.map(Some)
    };
    let stream = match tokio::time::timeout(HANDSHAKE_DEADLINE, handshake).await {
        Ok(Ok(Some(stream))) => stream,
        Ok(Ok(None)) | Err(_) => return,
        Ok(Err(error)) => {
            return klog::info("log.go:245", &format!("http: TLS handshake error from {peer}: {error}"));
        }
    };
    let goaway = Arc::new(Notify::new());
    let service = service_fn(|request: hyper::Request<hyper::body::Incoming>| {
        let (head, body) = request.into_parts();
        if proxy::goes_away(&head, state.goaway_chance) {
            goaway.notify_one();
        }
        proxy::handle(Arc::clone(&state), hyper::Request::from_parts(head, body))
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().title_case_headers(true).half_close(state.half_close);
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut closing = std::pin::pin!(state.reached(Ending::Closing));
    let mut leaving = false;
    loop {
        tokio::select! {
            // Its errors are the client's: a reset, or the requests dropped on purpose.
            _ = connection.as_mut() => return,
            () = goaway.notified(), if !leaving => {}
            () = &mut closing, if !leaving => {}
        }
        leaving = true;
        connection.as_mut().graceful_shutdown();
    }
}
