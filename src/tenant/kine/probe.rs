//! Whether a kine can read its database: one etcd read of a key that need not exist, over gRPC.
//!
//! Its gate calls it. A kine that lost its database goes on accepting connections, so connecting tells nothing; its gRPC
//! health service says "serving" whatever the database does. Holds no connection between two calls.

use super::super::defaults;
use http::{Method, Request};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::fmt::Display;
use tokio::io::{AsyncRead, AsyncWrite};

/// What an API server asks its store for, too, when it wants to know whether it is there.
const KEY: &[u8] = b"/registry/health";
/// The answer has a header and at most this one key, which nobody writes.
const LARGEST_ANSWER: usize = 64 << 10;
const OK: &[u8] = b"0";

/// `Ok` once the read has succeeded; else what it waits for. Never quotes kine, whose errors hold keys and values.
pub(super) async fn read(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<(), String> {
    match tokio::time::timeout(defaults::PROBE_ANSWER, exchange(stream)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("kine answers no read within {} s", defaults::PROBE_ANSWER.as_secs())),
    }
}

async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Result<(), String> {
    let failed = |error: &dyn Display| format!("kine answers no read ({error})");
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(|e| failed(&e))?;
    // Ends with the sender.
    tokio::spawn(connection);
    let request = Request::builder()
        .method(Method::POST)
        .uri("http://kine/etcdserverpb.KV/Range")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::from(message(KEY))))
        .map_err(|e| failed(&e))?;
    let answer = sender.send_request(request).await.map_err(|e| failed(&e))?;
    // A failure may be told in the headers, when there is no body.
    let early = answer.headers().get("grpc-status").cloned();
    let body = Limited::new(answer.into_body(), LARGEST_ANSWER).collect().await.map_err(|e| failed(&e))?;
    let status = body.trailers().and_then(|trailers| trailers.get("grpc-status").cloned()).or(early);
    match status {
        Some(status) if status.as_bytes() == OK => Ok(()),
        Some(status) => {
            Err(format!("kine cannot read its database yet (gRPC status {})", status.to_str().unwrap_or("?")))
        }
        None => Err("kine answers no read (it is no gRPC server)".to_owned()),
    }
}

/// A `RangeRequest` of one key in the frame of gRPC: not compressed, its length, field 1 as bytes.
fn message(key: &[u8]) -> Vec<u8> {
    let field = [&[0x0a, u8::try_from(key.len()).unwrap_or(0)], key].concat();
    let length = u32::try_from(field.len()).unwrap_or(0).to_be_bytes();
    [&[0], &length[..], &field].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, Response};
    use http_body_util::{Empty, StreamBody, combinators::BoxBody};
    use hyper::body::Frame;
    use hyper::service::service_fn;
    use std::convert::Infallible;
    use tokio::io::duplex;

    type Answer = Response<BoxBody<Bytes, Infallible>>;

    /// What a probe makes of a server that answers so.
    async fn against(answer: impl Fn() -> Answer + Send + 'static) -> Result<(), String> {
        let (near, far) = duplex(4096);
        let serve = async move {
            let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                let answer = answer();
                async move {
                    assert_eq!(request.uri().path(), "/etcdserverpb.KV/Range");
                    let body = request.into_body().collect().await.unwrap().to_bytes();
                    assert_eq!(body, &b"\0\0\0\0\x12\n\x10/registry/health"[..]);
                    Ok::<_, Infallible>(answer)
                }
            });
            hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(far), service)
                .await
        };
        tokio::select! {
            outcome = read(near) => outcome,
            _ = serve => panic!("the server ended"),
        }
    }

    fn with_trailer(status: &'static str) -> Answer {
        let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), status.parse().unwrap())]);
        let frames = [Frame::data(Bytes::from_static(b"\0\0\0\0\0")), Frame::trailers(trailers)];
        let body = StreamBody::new(futures::stream::iter(frames.map(Ok)));
        Response::new(BoxBody::new(body))
    }

    #[tokio::test]
    async fn only_a_read_that_succeeded_opens_the_gate() {
        assert_eq!(against(|| with_trailer("0")).await, Ok(()));
        let error = against(|| with_trailer("2")).await.unwrap_err();
        assert!(error.contains("cannot read its database yet (gRPC status 2)"), "{error}");
        let only_headers =
            || Response::builder().header("grpc-status", "14").body(BoxBody::new(Empty::new())).unwrap();
        assert!(against(only_headers).await.unwrap_err().contains("gRPC status 14"));
        let error = against(|| Response::new(BoxBody::new(Empty::new()))).await.unwrap_err();
        assert!(error.contains("no gRPC server"), "{error}");
    }

    #[tokio::test]
    async fn a_closed_connection_is_waited_over() {
        let (near, far) = duplex(64);
        drop(far);
        assert!(read(near).await.unwrap_err().starts_with("kine answers no read"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_is_given_up_for_the_next_try() {
        let (near, _far) = duplex(4096);
        assert!(read(near).await.unwrap_err().contains("within 2 s"));
    }
}
