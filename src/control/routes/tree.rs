//! The whole tree: its status, its figures, a retry of any of its chains, its end.

use super::Shared;
use crate::control::answer::{NoBody, Problem, Segments};
use crate::{metrics, names};
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use berth_actors::message::Command;
use berth_actors::status::TreeStatus;
use serde_json::{Value, json};

pub(super) async fn status(State(backend): State<Shared>) -> Result<Json<TreeStatus>, Problem> {
    backend.status().await.map(Json)
}

/// Under the path and in the format that Prometheus expects of everyone.
pub(super) async fn metrics(State(backend): State<Shared>) -> Result<Response, Problem> {
    let text = metrics::exposition(backend.status().await?).await;
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

pub(super) async fn down(State(backend): State<Shared>, _: NoBody) -> Result<Json<Value>, Problem> {
    backend.ask(Command::Down).await?;
    Ok(Json(json!({})))
}

pub(super) async fn retry(
    State(backend): State<Shared>,
    segments: Segments,
    _: NoBody,
) -> Result<Json<Value>, Problem> {
    let name = segments.get("chain", names::chain)?;
    backend.ask(Command::RetryTenant { name }).await?;
    Ok(Json(json!({})))
}
