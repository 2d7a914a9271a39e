//! kcp as a whole: what its consumers reach it with.

use super::Shared;
use crate::control::answer::Problem;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

pub(super) async fn kubeconfig(State(backend): State<Shared>) -> Result<Response, Problem> {
    let kubeconfig = backend.files.kcp_kubeconfig().await?;
    Ok(([(CONTENT_TYPE, "application/yaml")], kubeconfig).into_response())
}
