//! kcp as a whole: its handovers, to do, to think through, and past; and what its consumers reach it with.

use super::{Backend, Shared, unexpected};
use crate::control::answer::{Optional, Problem, Strict};
use crate::control::api::{NewHandover, NewKcp, Rotation};
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use berth_actors::handover::Wish;
use berth_actors::message::{Command, Refusal, Reply};
use berth_actors::status::{HandoverHistory, HandoverPlan, HandoverStatus};

/// A handover that was rolled back is an answer, not a refusal: it says how far it came.
pub(super) async fn handover(
    State(backend): State<Shared>,
    Optional(NewHandover { wish }): Optional<NewHandover>,
) -> Result<Json<HandoverStatus>, Problem> {
    begun(&backend, wish).await
}

/// A handover to another kcp.
pub(super) async fn upgrade(
    State(backend): State<Shared>,
    Strict(wanted): Strict<NewKcp>,
) -> Result<Json<HandoverStatus>, Problem> {
    let wish = backend.files.kcp_upgrade(wanted).await?;
    begun(&backend, wish).await
}

/// A handover to a slot with a new certificate. The first one waits until clients can know of the authority behind it.
pub(super) async fn rotate(
    State(backend): State<Shared>,
    Strict(Rotation { now }): Strict<Rotation>,
) -> Result<Json<HandoverStatus>, Problem> {
    if !backend.files.prepare_rotation().await? && !now {
        let text = "kcp's clients trust no more than the certificate that is to go. Now there is an authority for the next ones, \
                    and the kubeconfig of `berth kcp kubeconfig` trusts both: hand it out to every client, then say this again";
        return Err(Refusal::Conflict(text.to_owned()).into());
    }
    begun(&backend, Wish::RotateCertificates).await
}

async fn begun(backend: &Backend, wish: Wish) -> Result<Json<HandoverStatus>, Problem> {
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

pub(super) async fn kubeconfig(State(backend): State<Shared>) -> Result<Response, Problem> {
    let kubeconfig = backend.files.kcp_kubeconfig().await?;
    Ok(([(CONTENT_TYPE, "application/yaml")], kubeconfig).into_response())
}
