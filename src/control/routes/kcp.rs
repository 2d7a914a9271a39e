//! Handovers: to do, to think through, and past.

use super::{Shared, unexpected};
use crate::control::answer::{Optional, Problem};
use crate::control::api::NewHandover;
use axum::Json;
use axum::extract::State;
use berth_actors::message::{Command, Reply};
use berth_actors::status::{HandoverHistory, HandoverPlan, HandoverStatus};

/// A handover that was rolled back is an answer, not a refusal: it says how far it came.
pub(super) async fn handover(
    State(backend): State<Shared>,
    Optional(NewHandover { wish }): Optional<NewHandover>,
) -> Result<Json<HandoverStatus>, Problem> {
    match backend.ask(Command::Handover { wish }).await? {
        Reply::Handover(status) => Ok(Json(*status)),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn plan(
    State(backend): State<Shared>,
    Optional(NewHandover { wish }): Optional<NewHandover>,
) -> Result<Json<HandoverPlan>, Problem> {
    match backend.ask(Command::PlanHandover { wish }).await? {
        Reply::Plan(plan) => Ok(Json(*plan)),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn history(State(backend): State<Shared>) -> Result<Json<HandoverHistory>, Problem> {
    match backend.ask(Command::HandoverHistory).await? {
        Reply::History(history) => Ok(Json(history)),
        other => Err(unexpected(&other)),
    }
}
