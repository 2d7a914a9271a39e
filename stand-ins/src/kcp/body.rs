//! The one body type of every answer: either whole text, or the backend's stream.

use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;

/// A body broke off; the client sees its connection or stream end without an answer's end.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Broken(pub String);

pub(super) type Body = UnsyncBoxBody<Bytes, Broken>;

pub(super) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}
