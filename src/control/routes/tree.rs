//! The whole tree: its status, a retry of any of its chains, its end.

use super::Shared;
use crate::control::answer::{NoBody, Problem, Segments};
use crate::names;
use axum::Json;
use axum::extract::State;
use berth_actors::message::Command;
use berth_actors::status::TreeStatus;
use serde_json::{Value, json};

pub(super) async fn status(State(backend): State<Shared>) -> Result<Json<TreeStatus>, Problem> {
    backend.status().await.map(Json)
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
