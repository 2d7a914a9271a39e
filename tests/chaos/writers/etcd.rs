//! A kine as its clients see it: creates one key at a time, lists a prefix. A connection for each question, as a storm may have
//! put another kine behind the socket meanwhile.

use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use std::collections::BTreeSet;
use std::path::Path;
use tokio::net::UnixStream;

/// Nobody else's: what a component of Berth writes is below `/registry`.
const PREFIX: &str = "/chaos/";
/// The key after the last that begins with [`PREFIX`].
const AFTER: &str = "/chaos0";
/// `etcdserverpb.Compare.CompareTarget`: the revision of the last change, which is 0 where there is no such key.
const MOD: i32 = 2;
/// A gRPC message begins with a byte that says whether it is compressed, and its length.
const HEAD: usize = 5;

#[derive(Clone, PartialEq, Message)]
struct Compare {
    #[prost(int32, tag = "2")]
    target: i32,
    #[prost(bytes = "vec", tag = "3")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Put {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Operation {
    #[prost(message, optional, tag = "2")]
    put: Option<Put>,
}

/// The one shape of a transaction that kine takes for a create: where the key is not there, put it.
#[derive(Clone, PartialEq, Message)]
struct Transaction {
    #[prost(message, repeated, tag = "1")]
    compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    success: Vec<Operation>,
}

#[derive(Clone, PartialEq, Message)]
struct TransactionAnswer {
    #[prost(bool, tag = "2")]
    succeeded: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Range {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct RangeAnswer {
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
}

pub async fn create(socket: &Path, name: &str) -> Result<(), String> {
    let key = format!("{PREFIX}{name}").into_bytes();
    let put = Put { key: key.clone(), value: b"1".to_vec() };
    let transaction = Transaction {
        compare: vec![Compare { target: MOD, key }],
        success: vec![Operation { put: Some(put) }],
    };
    let answer: TransactionAnswer = ask(socket, "Txn", &transaction).await?;
    if answer.succeeded { Ok(()) } else { Err(format!("{name} is there already")) }
}

pub async fn names(socket: &Path) -> Result<BTreeSet<String>, String> {
    let range = Range { key: PREFIX.into(), range_end: AFTER.into() };
    let answer: RangeAnswer = ask(socket, "Range", &range).await?;
    let name = |pair: KeyValue| String::from_utf8(pair.key).ok()?.strip_prefix(PREFIX).map(str::to_owned);
    Ok(answer.kvs.into_iter().filter_map(name).collect())
}

async fn ask<A: Message + Default>(
    socket: &Path,
    method: &str,
    question: &impl Message,
) -> Result<A, String> {
    let stream = UnixStream::connect(socket).await.map_err(text)?;
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.map_err(text)?;
    // Ends with the sender.
    tokio::spawn(connection);
    let question = question.encode_to_vec();
    let length = u32::try_from(question.len()).unwrap().to_be_bytes();
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("http://kine/etcdserverpb.KV/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(Bytes::from([&[0], &length[..], &question].concat())))
        .unwrap();
    let answer = sender.send_request(request).await.map_err(text)?;
    let early = answer.headers().get("grpc-status").cloned();
    let body = answer.into_body().collect().await.map_err(text)?;
    let status = body.trailers().and_then(|trailers| trailers.get("grpc-status").cloned()).or(early);
    if status.as_ref().is_none_or(|status| status.as_bytes() != b"0") {
        return Err(format!("kine answers {method} with gRPC status {status:?}"));
    }
    let bytes = body.to_bytes();
    A::decode(bytes.get(HEAD..).unwrap_or_default()).map_err(text)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
