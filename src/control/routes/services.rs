//! Plain services: started, stopped, tried again.

use super::Shared;
use crate::control::answer::{NoBody, Problem, Segments};
use crate::control::api::Action;
use crate::names;
use axum::Json;
use axum::extract::State;
use berth_actors::message::{Command, Refusal, ServiceOrder};
use serde_json::{Value, json};

pub(super) async fn act(
    State(backend): State<Shared>,
    segments: Segments,
    _: NoBody,
) -> Result<Json<Value>, Problem> {
    let name = segments.get("service", names::service)?;
    let action = segments.raw("action");
    let order = match Action::parse(action) {
        Some(Action::Start) => ServiceOrder::Start,
        Some(Action::Stop) => ServiceOrder::Stop,
        Some(Action::Retry) => ServiceOrder::Retry,
        Some(Action::Restart | Action::Pause | Action::Resume) | None => {
            let reason = format!("a service has no action {action:?}: use start, stop or retry");
            return Err(Refusal::NotFound(reason).into());
        }
    };
    backend.ask(Command::Service { name, order }).await?;
    Ok(Json(json!({})))
}
