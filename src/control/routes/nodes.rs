//! The node snapshot of a cluster (M8): what the cloud controller manager believes exists.

use super::Shared;
use crate::control::answer::{NoBody, Problem, Segments};
use crate::names;
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

pub(super) async fn list(
    State(backend): State<Shared>,
    segments: Segments,
) -> Result<Json<Vec<String>>, Problem> {
    let cluster = segments.get("cluster", names::cluster)?;
    Ok(Json(backend.files.nodes(&cluster).await?))
}

pub(super) async fn add(
    State(backend): State<Shared>,
    segments: Segments,
    _: NoBody,
) -> Result<Json<Value>, Problem> {
    let cluster = segments.get("cluster", names::cluster)?;
    let node = segments.get("node", names::node)?;
    backend.files.add_node(&cluster, &node).await?;
    Ok(Json(json!({})))
}

pub(super) async fn remove(
    State(backend): State<Shared>,
    segments: Segments,
    _: NoBody,
) -> Result<Json<Value>, Problem> {
    let cluster = segments.get("cluster", names::cluster)?;
    let node = segments.get("node", names::node)?;
    backend.files.remove_node(&cluster, &node).await?;
    Ok(Json(json!({})))
}
