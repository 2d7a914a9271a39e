//! One request from its head to its answer: who asks, what the table says, and the backend's answer made kcp's.

use super::answer::{self, Answer};
use super::auth::{self, Caller, Credential};
use super::body::{self, Body, Broken};
use super::health::Probe;
use super::klog;
use super::routes::{self, Decision, Forward, Shape};
use super::state::{Ending, State};
use futures::StreamExt;
use http_body_util::{BodyExt, BodyStream, Limited, StreamBody};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::{request, response};
use hyper::{Method, Request, Response, StatusCode};
use rand::Rng;
use serde_json::{Value, json};
use std::future::ready;
use std::sync::Arc;
use std::time::Duration;
use time::format_description::well_known::Rfc3339;

/// The connection ends without an answer: an EOF for HTTP/1.1, a reset stream for HTTP/2.
#[derive(Debug, thiserror::Error)]
#[error("dropped during the shutdown")]
pub(super) struct Dropped;

/// Of the requests that meet a terminating kcp, about this share gets a 504; the others get nothing.
const ANSWERED_AT_THE_END: f64 = 2.0 / 3.0;
/// Largest single object; etcd takes 1.5 MiB.
const LARGEST_OBJECT: usize = 8 << 20;
/// The write buffer of a Go server's connection.
const ONE_WRITE: u64 = 4096;
const REVIEW_DEADLINE: Duration = Duration::from_secs(5);
const DELAY: &str = "kcp-stand-in-delay";
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// Belong to one connection, or are the front's own to say.
const NOT_FORWARDED: &[HeaderName] = &[
    header::HOST,
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
];

pub(super) async fn handle(state: Arc<State>, request: Request<Incoming>) -> Result<Response<Body>, Dropped> {
    let (head, body) = request.into_parts();
    let (path, query) = (head.uri.path(), head.uri.query().unwrap_or_default());
    let authorization = head.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let caller = match auth::credential(authorization, &state.tokens) {
        Credential::Caller(caller) => Some(caller),
        Credential::Token(_) if state.terminating() => None,
        Credential::Token(token) => review(&state, token).await,
    };
    // A wrong token gets no further, whatever it asks for.
    let decision = match &caller {
        Some(caller) => routes::decide(&head.method, path, query, caller),
        None => Decision::Answer(Box::new(Answer::unauthorized())),
    };
    if state.terminating() && !matches!(decision, Decision::Health { .. }) {
        if rand::rng().random_bool(ANSWERED_AT_THE_END) {
            return Ok(Answer::shutting_down().into_response());
        }
        return Err(Dropped);
    }
    Ok(match decision {
        Decision::Answer(answer) => answer.into_response(),
        Decision::Health { probe, check } => {
            health(&state, probe, check.as_deref(), query.contains("verbose")).await.into_response()
        }
        Decision::Shards { name } => shards(&state, &name).into_response(),
        Decision::Forward(forward) => {
            tokio::time::sleep(delay(&head.headers)).await;
            let user = caller.as_ref().map_or("", Caller::user).to_owned();
            let body = body.map_err(|error| Broken(error.to_string())).boxed_unsync();
            self::forward(&state, &user, &forward, Request::from_parts(head, body)).await
        }
    })
}

/// How much later than it could this request wants to be answered.
fn delay(headers: &HeaderMap) -> Duration {
    let given = headers.get(DELAY).and_then(|value| value.to_str().ok()?.parse().ok());
    given.map_or(Duration::ZERO, Duration::from_millis).min(LONGEST_DELAY)
}

/// A token none of ours may be a ServiceAccount's: authenticated, though allowed nothing.
async fn review(state: &State, token: &str) -> Option<Caller> {
    if token.split('.').count() != 3 {
        return None;
    }
    let question =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let call = state.upstream.call(Method::POST, path, Some(&question));
    let (_, answer) = tokio::time::timeout(REVIEW_DEADLINE, call).await.ok()?.ok()?;
    let answer: Value = serde_json::from_slice(&answer).ok()?;
    (answer.pointer("/status/authenticated") == Some(&Value::Bool(true))).then(|| {
        Caller::Stranger(
            answer.pointer("/status/user/username").and_then(Value::as_str).unwrap_or_default().to_owned(),
        )
    })
}

async fn health(state: &State, probe: Probe, check: Option<&str>, verbose: bool) -> Answer {
    let vitals = state.vitals().await;
    if let Some(check) = check {
        return probe.single(vitals, check);
    }
    let (answer, failed) = probe.answer(vitals, verbose);
    if !failed.is_empty() {
        klog::info("healthz.go:261", &format!("{} check failed: {}", failed.join(","), probe.name()));
        for check in failed {
            klog::raw(&format!("[-]{check} failed: not finished\n"));
        }
    }
    answer
}

fn shards(state: &State, name: &str) -> Answer {
    let shard = &state.shard;
    let object = json!({
        "apiVersion": "core.kcp.io/v1alpha1",
        "kind": "Shard",
        "metadata": {
            "name": "root",
            "uid": "00000000-0000-4000-8000-000000000001",
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": shard.since.replace_nanosecond(0).unwrap_or(shard.since).format(&Rfc3339).ok(),
            "annotations": {"kcp.io/cluster": "root"},
        },
        "spec": {
            "baseURL": shard.base_url,
            "externalURL": shard.external_url,
            "virtualWorkspaceURL": shard.virtual_workspace_url,
        },
    });
    match name {
        "root" => Answer::json(StatusCode::OK, &object),
        "" => Answer::json(
            StatusCode::OK,
            &json!({
                "apiVersion": "core.kcp.io/v1alpha1",
                "kind": "ShardList",
                "metadata": {"resourceVersion": "1"},
                "items": [object],
            }),
        ),
        other => Answer::not_found(&routes::Resource {
            group: "core.kcp.io".to_owned(),
            resource: "shards".to_owned(),
            name: other.to_owned(),
            ..routes::Resource::default()
        }),
    }
}

async fn forward(state: &State, user: &str, to: &Forward, request: Request<Body>) -> Response<Body> {
    let query = query(request.uri().query(), to.nothing);
    let mut request = request;
    strip(request.headers_mut(), to.shape == Shape::Object);
    let (head, body) = match state.upstream.send(user, &format!("{}{query}", to.path), request).await {
        Ok(answer) => answer.into_parts(),
        Err(error) => return Answer::internal(&error.to_string()).into_response(),
    };
    let body = body.map_err(|error| Broken(error.to_string()));
    let mut response = if to.shape == Shape::Object && head.status.is_success() && is_json(&head) {
        annotated(head, body, &to.cluster).await
    } else if to.shape == Shape::Watch {
        // A watch that ends early ends cleanly: the client resumes from its last resource version elsewhere.
        let silent = state.silent_watches.clone();
        // Each event comes in a frame of its own.
        let speaks = move |_: &_| ready(!silent.as_ref().is_some_and(|file| file.exists()));
        let stream = BodyStream::new(body).filter(speaks).take_until(state.reached(Ending::Terminating));
        Response::from_parts(head, StreamBody::new(stream).boxed_unsync())
    } else if body.size_hint().upper().is_some_and(|length| length <= ONE_WRITE) {
        at_once(head, body).await
    } else {
        Response::from_parts(head, body.boxed_unsync())
    };
    answer::stamp(&mut response);
    if to.shape != Shape::Page {
        for name in ["x-kubernetes-pf-flowschema-uid", "x-kubernetes-pf-prioritylevel-uid"] {
            response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(""));
        }
    }
    response
}

/// With its question mark. A blank cluster is asked for labels nothing carries.
fn query(query: Option<&str>, nothing: bool) -> String {
    if !nothing {
        return query.map(|query| format!("?{query}")).unwrap_or_default();
    }
    let mut pairs: Vec<&str> = query
        .unwrap_or_default()
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.starts_with("labelSelector="))
        .collect();
    pairs.push("labelSelector=kcp-stand-in%2Fnothing");
    format!("?{}", pairs.join("&"))
}

fn strip(headers: &mut HeaderMap, object: bool) {
    let foreign: Vec<HeaderName> = headers
        .keys()
        .filter(|name| {
            let text = name.as_str();
            NOT_FORWARDED.contains(name)
                || ["impersonate-", "x-remote-", "keep-alive", "proxy-"].iter().any(|own| text.starts_with(own))
                // An object that gets an annotation has to be readable here.
                || object && *name == header::ACCEPT_ENCODING
        })
        .cloned()
        .collect();
    for name in foreign {
        headers.remove(name);
    }
}

fn is_json(head: &response::Parts) -> bool {
    let of =
        |name: HeaderName| head.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    of(header::CONTENT_TYPE).starts_with("application/json")
}

/// A small answer's head and body leave in one write, as a Go server's do.
async fn at_once(
    head: response::Parts,
    body: impl hyper::body::Body<Data = Bytes, Error = Broken> + Send + 'static,
) -> Response<Body> {
    match body.collect().await {
        Ok(body) => Response::from_parts(head, body::whole(body.to_bytes())),
        Err(error) => Answer::internal(&error.to_string()).into_response(),
    }
}

/// The object with `kcp.io/cluster`, as every object of a logical cluster carries it.
async fn annotated(
    mut head: response::Parts,
    body: impl hyper::body::Body<Data = Bytes, Error = Broken> + Send + 'static,
    cluster: &str,
) -> Response<Body> {
    let bytes = match Limited::new(body, LARGEST_OBJECT).collect().await {
        Ok(bytes) => bytes.to_bytes(),
        Err(error) => return Answer::internal(&error.to_string()).into_response(),
    };
    let bytes = annotate(&bytes, cluster).map_or(bytes, Bytes::from);
    head.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
    Response::from_parts(head, body::whole(bytes))
}

/// `None` for what is no stored object (a Status, a review, a table).
fn annotate(object: &[u8], cluster: &str) -> Option<Vec<u8>> {
    let mut object: Value = serde_json::from_slice(object).ok()?;
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    metadata.get("uid")?;
    metadata
        .entry("annotations")
        .or_insert_with(|| json!({}))
        .as_object_mut()?
        .insert("kcp.io/cluster".to_owned(), json!(cluster));
    let mut bytes = serde_json::to_vec(&object).ok()?;
    bytes.push(b'\n');
    Some(bytes)
}

/// Whether this request is the one after which an HTTP/2 client is sent to another connection.
pub(super) fn goes_away(head: &request::Parts, chance: f64) -> bool {
    head.version == hyper::Version::HTTP_2 && chance > 0.0 && rand::rng().random_bool(chance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_object_gets_its_cluster_and_nothing_else_does() {
        let seen = annotate(br#"{"kind":"Lease","metadata":{"uid":"u"}}"#, "system:admin").unwrap();
        let seen: Value = serde_json::from_slice(&seen).unwrap();
        assert_eq!(seen["metadata"]["annotations"]["kcp.io/cluster"], "system:admin");
        assert_eq!(annotate(br#"{"kind":"Status","metadata":{}}"#, "root"), None);
    }

    #[test]
    fn a_blank_cluster_is_asked_for_nothing() {
        assert_eq!(
            query(Some("watch=true&labelSelector=a"), true),
            "?watch=true&labelSelector=kcp-stand-in%2Fnothing"
        );
        assert_eq!(query(None, true), "?labelSelector=kcp-stand-in%2Fnothing");
        assert_eq!(query(Some("limit=5"), false), "?limit=5");
        assert_eq!(query(None, false), "");
    }

    #[test]
    fn nobody_but_the_front_names_the_user() {
        let mut headers = HeaderMap::new();
        for name in ["authorization", "x-remote-user", "impersonate-user", "host", "accept", "user-agent"] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
        }
        strip(&mut headers, false);
        let mut left: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["accept", "user-agent"]);
    }
}
