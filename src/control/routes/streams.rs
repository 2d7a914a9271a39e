//! What goes on for as long as the reader stays: logs and events.

use super::{Shared, too_late};
use crate::control::answer::{Problem, Segments, StrictQuery};
use crate::control::api::{EventQuery, LogQuery, StampedEvent};
use crate::control::deadline;
use crate::control::events::lost_events;
use crate::{logs, names};
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use berth_actors::message::Refusal;
use futures::{Stream, StreamExt, stream};
use std::convert::Infallible;
use std::io;
use std::path::Path;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;

pub(super) async fn logs(
    State(backend): State<Shared>,
    segments: Segments,
    StrictQuery(query): StrictQuery<LogQuery>,
) -> Result<Response, Problem> {
    let chain = segments.get("chain", names::chain)?;
    let component = segments.get("component", names::component)?;
    let opening = async {
        let path = backend.files.log_path(&chain, &component).await?;
        let failed = |error| unreadable(&chain, &component, &path, &error);
        let ending = backend.ending.clone();
        if query.follow {
            let chunks = logs::follow(path.clone(), query.lines).await.map_err(failed)?;
            Ok(stream_body("text/plain; charset=utf-8", ending, chunks))
        } else {
            let chunks = logs::last_lines(&path, query.lines).await.map_err(failed)?;
            Ok(stream_body("text/plain; charset=utf-8", ending, chunks))
        }
    };
    tokio::time::timeout(deadline::READ, opening).await.unwrap_or_else(|_| Ok(too_late(deadline::READ)))
}

fn unreadable(chain: &str, component: &str, path: &Path, error: &io::Error) -> Problem {
    let path = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            Refusal::NotFound(format!("{chain}/{component} has written no log yet ({path})"))
        }
        _ => Refusal::Failed(format!("read the log of {chain}/{component} ({path}): {error}")),
    }
    .into()
}

pub(super) async fn events(
    State(backend): State<Shared>,
    StrictQuery(query): StrictQuery<EventQuery>,
) -> Response {
    let (kept, live) = backend.events.subscribe();
    let kept = stream::iter(kept);
    let lines = if query.follow { kept.chain(live_events(live)).boxed() } else { kept.boxed() };
    stream_body(
        "application/jsonl",
        backend.ending.clone(),
        lines.map(|event| Ok::<_, Infallible>(line(&event))),
    )
}

fn live_events(live: broadcast::Receiver<StampedEvent>) -> impl Stream<Item = StampedEvent> + Send {
    stream::unfold(live, |mut live| async move {
        match live.recv().await {
            Ok(event) => Some((event, live)),
            Err(RecvError::Lagged(lost)) => {
                Some((StampedEvent { at: String::new(), event: lost_events(lost) }, live))
            }
            Err(RecvError::Closed) => None,
        }
    })
}

fn line(event: &StampedEvent) -> Bytes {
    let mut line = serde_json::to_vec(event).unwrap_or_default();
    line.push(b'\n');
    line.into()
}

pub(super) fn stream_body<E>(
    content_type: &'static str,
    ending: CancellationToken,
    chunks: impl Stream<Item = Result<Bytes, E>> + Send + 'static,
) -> Response
where
    E: Into<axum::BoxError> + 'static,
{
    let body = Body::from_stream(chunks.take_until(ending.cancelled_owned()));
    ([(CONTENT_TYPE, content_type)], body).into_response()
}
