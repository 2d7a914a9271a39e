//! Requests to one address of kcp as shard-admin, and what a refusal says.
//!
//! Lives for one question of a handover: its connections end with it, so that none of Berth's own is left on a slot that
//! is about to stop.

use crate::https::{Https, HttpsError};
use crate::kcp::defaults::REQUEST_DEADLINE;
use crate::kcp::material::Material;
use crate::one_line::one_line;
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use std::net::SocketAddr;

#[derive(Debug)]
pub(crate) struct Session {
    https: Https,
    bearer: String,
    address: SocketAddr,
}

/// An answer that is neither what was asked for nor an expected refusal.
#[derive(Debug, thiserror::Error)]
#[error("kcp at {address} answered {method} {path} with HTTP {status}: {reason}")]
pub struct Unexpected {
    address: SocketAddr,
    method: Method,
    path: String,
    status: StatusCode,
    reason: String,
}

/// The `Status` object of an error; kcp leaves out any of its fields now and then.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Status {
    pub message: String,
    pub details: Details,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Details {
    pub name: String,
}

/// One whole answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub status: StatusCode,
    pub body: Bytes,
    address: SocketAddr,
    method: Method,
    path: String,
}

impl Session {
    pub(crate) fn new(set: &Material, address: SocketAddr) -> Result<Self, HttpsError> {
        Ok(Self { https: Https::new(set.trusted(), None)?, bearer: set.token().bearer(), address })
    }

    /// `path` begins with the logical cluster. Cancel-safe.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Reply, HttpsError> {
        let Self { https, bearer, address } = self;
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let sent = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let url = format!("https://{address}{path}");
        let (status, body) = https.send(method.clone(), &url, &headers, sent, REQUEST_DEADLINE).await?;
        Ok(Reply { status, body, address: *address, method, path: path.to_owned() })
    }
}

impl Reply {
    /// The error this answer carries; empty when it is none.
    pub(crate) fn error(&self) -> Status {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The uid of the object this answer holds.
    pub(crate) fn uid(&self) -> Option<String> {
        self.metadata("uid")
    }

    /// Of the object this answer holds: one for each write.
    pub(crate) fn resource_version(&self) -> Option<String> {
        self.metadata("resourceVersion")
    }

    fn metadata(&self, field: &str) -> Option<String> {
        let object: Value = serde_json::from_slice(&self.body).ok()?;
        Some(object.get("metadata")?.get(field)?.as_str()?.to_owned())
    }

    pub(crate) fn unexpected(self) -> Unexpected {
        let message = self.error().message;
        let reason = if message.is_empty() { "no reason given".to_owned() } else { one_line(message) };
        let Self { address, method, path, status, .. } = self;
        Unexpected { address, method, path, status, reason }
    }
}
