//! Tenant clusters: made, deleted, started, stopped, and how to reach them.

use super::{Shared, unexpected};
use crate::control::answer::{NoBody, Problem, Segments, Strict};
use crate::control::api::{Action, CredentialOrder, Credentials, NewCluster, Rotated};
use crate::{clock, names};
use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use berth_actors::data_adoption::{AdoptionPlan, Consent};
use berth_actors::message::{Command, Refusal, Reply};
use berth_actors::status::ChainStatus;
use serde_json::{Value, json};

pub(super) async fn list(State(backend): State<Shared>) -> Result<Json<Vec<ChainStatus>>, Problem> {
    Ok(Json(backend.status().await?.tenants))
}

pub(super) async fn create(
    State(backend): State<Shared>,
    Strict(new): Strict<NewCluster>,
) -> Result<Json<Value>, Problem> {
    let name = names::cluster(&new.name)?;
    backend.ask(Command::CreateTenant { name }).await?;
    Ok(Json(json!({})))
}

pub(super) async fn delete(
    State(backend): State<Shared>,
    segments: Segments,
    _: NoBody,
) -> Result<Json<Value>, Problem> {
    let name = segments.get("cluster", names::cluster)?;
    backend.ask(Command::DeleteTenant { name }).await?;
    Ok(Json(json!({})))
}

pub(super) async fn act(
    State(backend): State<Shared>,
    segments: Segments,
    _: NoBody,
) -> Result<Json<Value>, Problem> {
    let name = segments.get("cluster", names::cluster)?;
    let action = segments.raw("action");
    let command = match Action::parse(action) {
        Some(Action::Start) => Command::StartTenant { name },
        Some(Action::Stop) => Command::StopTenant { name },
        Some(Action::Restart) => Command::RestartTenant { name },
        Some(Action::Retry) => Command::RetryTenant { name },
        Some(Action::Pause) => Command::PauseTenant { name, at: clock::stamp() },
        Some(Action::Resume) => Command::ResumeTenant { name },
        None => {
            let reason = format!(
                "a cluster has no action {action:?}: use start, stop, restart, retry, pause or resume"
            );
            return Err(Refusal::NotFound(reason).into());
        }
    };
    backend.ask(command).await?;
    Ok(Json(json!({})))
}

pub(super) async fn plan_adoption(
    State(backend): State<Shared>,
    segments: Segments,
) -> Result<Json<AdoptionPlan>, Problem> {
    let name = segments.get("cluster", names::cluster)?;
    match backend.ask(Command::PlanAdoption { name }).await? {
        Reply::Adoption(plan) => Ok(Json(*plan)),
        other => Err(unexpected(&other)),
    }
}

pub(super) async fn adopt(
    State(backend): State<Shared>,
    segments: Segments,
    Strict(consent): Strict<Consent>,
) -> Result<Json<Value>, Problem> {
    let name = segments.get("cluster", names::cluster)?;
    backend.ask(Command::AdoptData { name, consent }).await?;
    Ok(Json(json!({})))
}

pub(super) async fn credentials(
    State(backend): State<Shared>,
    segments: Segments,
) -> Result<Json<Credentials>, Problem> {
    let name = segments.get("cluster", names::cluster)?;
    Ok(Json(backend.files.credentials(&name).await?))
}

pub(super) async fn rotate(
    State(backend): State<Shared>,
    segments: Segments,
    Strict(order): Strict<CredentialOrder>,
) -> Result<Json<Rotated>, Problem> {
    let name = segments.get("cluster", names::cluster)?;
    Ok(Json(backend.files.rotate_credentials(&name, order, backend.tree.clone()).await?))
}

pub(super) async fn kubeconfig(
    State(backend): State<Shared>,
    segments: Segments,
) -> Result<Response, Problem> {
    let name = segments.get("cluster", names::cluster)?;
    let kubeconfig = backend.files.kubeconfig(&name).await?;
    Ok(([(CONTENT_TYPE, "application/yaml")], kubeconfig).into_response())
}
