//! The daemon itself: who it is, and its succession.

use super::Shared;
use crate::control::answer::{Problem, Strict};
use crate::control::api::{About, NewBinary};
use crate::control::daemon::Upgrade;
use axum::Json;
use axum::extract::State;
use berth_actors::message::Refusal;
use serde_json::{Value, json};
use tokio::sync::oneshot;

pub(super) async fn about(State(backend): State<Shared>) -> Json<About> {
    Json(backend.daemon.about.clone())
}

/// Answered before the daemon goes: the successor has another `instance`.
pub(super) async fn upgrade(
    State(backend): State<Shared>,
    Strict(NewBinary { program }): Strict<NewBinary>,
) -> Result<Json<Value>, Problem> {
    let ending = || Refusal::Conflict("the daemon is ending already".to_owned());
    let (answer, answered) = oneshot::channel();
    backend.daemon.upgrades.try_send(Upgrade { program, answer }).map_err(|_| ending())?;
    answered.await.map_err(|_| ending())??;
    Ok(Json(json!({})))
}
