//! The answers kcp gives by itself, byte for byte: `Status` objects in its field order, and plain text.

use super::body::{self, Body};
use super::routes::Resource;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";
const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    pub status: StatusCode,
    pub content_type: &'static str,
    pub body: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    api_version: &'a str,
    metadata: Metadata,
    status: &'a str,
    message: &'a str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    details: Option<Details<'a>>,
    code: u16,
}

#[derive(Serialize)]
struct Metadata {}

#[derive(Serialize, Default)]
struct Details<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    kind: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    causes: Vec<Cause<'a>>,
}

#[derive(Serialize)]
struct Cause<'a> {
    message: &'a str,
}

impl Answer {
    pub(super) fn text(status: StatusCode, body: impl Into<String>) -> Self {
        Self { status, content_type: TEXT, body: body.into() }
    }

    pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Self {
        let mut body = serde_json::to_string(value).unwrap_or_default();
        body.push('\n');
        Self { status, content_type: JSON, body }
    }

    fn failure(code: StatusCode, reason: &str, message: &str, details: Option<Details<'_>>) -> Self {
        let status = Status {
            kind: "Status",
            api_version: "v1",
            metadata: Metadata {},
            status: "Failure",
            message,
            reason,
            details,
            code: code.as_u16(),
        };
        Self::json(code, &status)
    }

    pub(super) fn unauthorized() -> Self {
        Self::failure(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized", None)
    }

    pub(super) fn forbidden_path(user: &str, verb: &str, path: &str) -> Self {
        let message = format!("forbidden: User {user:?} cannot {verb} path {path:?}: access denied");
        Self::failure(StatusCode::FORBIDDEN, "Forbidden", &message, Some(Details::default()))
    }

    pub(super) fn forbidden(user: &str, wanted: &Resource) -> Self {
        let place = match wanted.namespace.as_str() {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let message = format!(
            "{} is forbidden: User {user:?} cannot {} resource {:?} in API group {:?} {place}: access denied",
            wanted.called(),
            wanted.verb,
            wanted.with_subresource(),
            wanted.group
        );
        Self::failure(StatusCode::FORBIDDEN, "Forbidden", &message, Some(wanted.details()))
    }

    pub(super) fn not_found(wanted: &Resource) -> Self {
        let message = format!("{} not found", wanted.called());
        Self::failure(StatusCode::NOT_FOUND, "NotFound", &message, Some(wanted.details()))
    }

    pub(super) fn workspace_not_found(name: &str) -> Self {
        let workspaces = Resource {
            group: "tenancy.kcp.io".to_owned(),
            resource: "workspaces".to_owned(),
            name: name.to_owned(),
            ..Resource::default()
        };
        Self::not_found(&workspaces)
    }

    pub(super) fn invalid_cluster(name: &str) -> Self {
        let message = format!("invalid cluster: {name:?} does not match the regex");
        Self::failure(StatusCode::BAD_REQUEST, "BadRequest", &message, None)
    }

    pub(super) fn no_cluster() -> Self {
        let cause = "no cluster found in the context";
        let details = Details { causes: vec![Cause { message: cause }], ..Details::default() };
        let message = format!("Internal error occurred: {cause}");
        Self::failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", &message, Some(details))
    }

    /// The backend broke off or is not there: what a client sees of a store it cannot reach.
    pub(super) fn internal(message: &str) -> Self {
        Self::failure(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", message, None)
    }

    pub(super) fn page_not_found() -> Self {
        Self::text(StatusCode::NOT_FOUND, "404 page not found\n")
    }

    /// What a resource request meets from SIGTERM on: it lacks kind and apiVersion.
    pub(super) fn shutting_down() -> Self {
        let status = Status {
            kind: "",
            api_version: "",
            metadata: Metadata {},
            status: "Failure",
            message: "Timeout: request did not complete within the allotted timeout",
            reason: "Timeout",
            details: Some(Details::default()),
            code: 504,
        };
        Self::json(StatusCode::GATEWAY_TIMEOUT, &status)
    }

    pub(super) fn into_response(self) -> Response<Body> {
        let mut response = Response::new(body::whole(self.body));
        *response.status_mut() = self.status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        stamp(&mut response);
        response
    }
}

/// The headers every answer of kcp carries.
pub(super) fn stamp(response: &mut Response<Body>) {
    let headers = response.headers_mut();
    if !headers.contains_key(AUDIT_ID)
        && let Ok(id) = HeaderValue::from_str(&uuid::Uuid::new_v4().to_string())
    {
        headers.insert(AUDIT_ID, id);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
}

impl Resource {
    fn details(&self) -> Details<'_> {
        Details { name: &self.name, group: &self.group, kind: &self.resource, causes: Vec::new() }
    }

    /// As the API names it in messages: `leases.coordination.k8s.io "kcp-controllers"`.
    fn called(&self) -> String {
        let mut called = self.resource.clone();
        if !self.group.is_empty() {
            called = format!("{called}.{}", self.group);
        }
        if !self.name.is_empty() {
            called = format!("{called} {:?}", self.name);
        }
        called
    }

    fn with_subresource(&self) -> String {
        match self.subresource.as_str() {
            "" => self.resource.clone(),
            subresource => format!("{}/{subresource}", self.resource),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_kcps_to_the_byte() {
        assert_eq!(
            Answer::unauthorized().body,
            "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\
             \"message\":\"Unauthorized\",\"reason\":\"Unauthorized\",\"code\":401}\n"
        );
        assert_eq!(
            Answer::forbidden_path("system:anonymous", "get", "/version").body,
            "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\
             \"forbidden: User \\\"system:anonymous\\\" cannot get path \\\"/version\\\": access denied\",\
             \"reason\":\"Forbidden\",\"details\":{},\"code\":403}\n"
        );
        assert_eq!(
            Answer::workspace_not_found("root:doesnotexist").body,
            "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\"message\":\
             \"workspaces.tenancy.kcp.io \\\"root:doesnotexist\\\" not found\",\"reason\":\"NotFound\",\"details\":\
             {\"name\":\"root:doesnotexist\",\"group\":\"tenancy.kcp.io\",\"kind\":\"workspaces\"},\"code\":404}\n"
        );
        assert_eq!(
            Answer::shutting_down().body,
            "{\"metadata\":{},\"status\":\"Failure\",\"message\":\"Timeout: request did not complete within the \
             allotted timeout\",\"reason\":\"Timeout\",\"details\":{},\"code\":504}\n"
        );
    }
}
