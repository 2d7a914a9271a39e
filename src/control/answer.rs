//! Requests taken strictly, and refusals as HTTP: every answer that is not 200 carries a [`Refusal`] as JSON.

use crate::names::BadName;
use crate::one_line::one_line;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use berth_actors::message::Refusal;
use serde::de::DeserializeOwned;
use std::collections::HashMap;

/// A refusal and the status code it travels under.
#[derive(Debug)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) refusal: Refusal,
}

impl Problem {
    pub(super) fn new(status: StatusCode, refusal: Refusal) -> Self {
        Self { status, refusal }
    }

    fn bad_request(reason: impl Into<String>) -> Self {
        Refusal::BadRequest(reason.into()).into()
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal {
            Refusal::NotFound(_) => StatusCode::NOT_FOUND,
            Refusal::AlreadyExists(_) | Refusal::Conflict(_) => StatusCode::CONFLICT,
            Refusal::BadRequest(_) => StatusCode::BAD_REQUEST,
            Refusal::Failed(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { status, refusal }
    }
}

impl From<BadName> for Problem {
    fn from(error: BadName) -> Self {
        Self::bad_request(error.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        (self.status, Json(self.refusal)).into_response()
    }
}

/// A JSON body in which every field is known. The content type does not matter: there is only JSON here.
pub(super) struct Strict<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Strict<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let body = body(request, state).await?;
        serde_json::from_slice(&body)
            .map(Self)
            .map_err(|error| Problem::bad_request(format!("the request's JSON: {}", one_line(error))))
    }
}

/// The same; no body at all is what the type is by default.
pub(super) struct Optional<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned + Default> FromRequest<S> for Optional<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let body = body(request, state).await?;
        if body.is_empty() {
            return Ok(Self(T::default()));
        }
        serde_json::from_slice(&body)
            .map(Self)
            .map_err(|error| Problem::bad_request(format!("the request's JSON: {}", one_line(error))))
    }
}

/// No body: one that is sent all the same has been sent to the wrong route.
pub(super) struct NoBody;

impl<S: Send + Sync> FromRequest<S> for NoBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if body(request, state).await?.is_empty() {
            return Ok(Self);
        }
        Err(Problem::bad_request("this request takes no body"))
    }
}

async fn body<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Problem> {
    Bytes::from_request(request, state)
        .await
        .map_err(|error| Problem::new(error.status(), Refusal::BadRequest(one_line(error.body_text()))))
}

/// A query string in which every parameter is known.
pub(super) struct StrictQuery<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for StrictQuery<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Query::<T>::from_request_parts(parts, state)
            .await
            .map(|Query(query)| Self(query))
            .map_err(|error| Problem::bad_request(one_line(error.body_text())))
    }
}

/// The decoded segments of a route's path; each is checked by a function of [`crate::names`] when it is taken.
pub(super) struct Segments(HashMap<String, String>);

impl Segments {
    pub(super) fn get(
        &self,
        segment: &'static str,
        check: fn(&str) -> Result<String, BadName>,
    ) -> Result<String, Problem> {
        Ok(check(self.raw(segment))?)
    }

    pub(super) fn raw(&self, segment: &'static str) -> &str {
        self.0.get(segment).map_or("", String::as_str)
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Segments {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        Path::from_request_parts(parts, state)
            .await
            .map(|Path(segments)| Self(segments))
            .map_err(|error| Problem::bad_request(one_line(error.body_text())))
    }
}
