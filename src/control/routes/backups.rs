//! A cluster as one file, out and in. Both are streams: the file is the caller's own, and the daemon knows no path of it.

use super::Shared;
use super::streams::stream_body;
use crate::control::answer::{NoBody, Problem, Segments};
use crate::names;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::response::Response;
use berth_actors::message::{Command, Refusal};
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::io;

pub(super) async fn take(
    State(backend): State<Shared>,
    segments: Segments,
    _: NoBody,
) -> Result<Response, Problem> {
    let name = segments.get("cluster", names::cluster)?;
    let frames = backend.files.back_up(&name, backend.tree.clone()).await?;
    let frames = stream::unfold(frames, |mut frames| async move { Some((frames.recv().await?, frames)) });
    let frames = frames.map(|frame| Ok::<_, Infallible>(Bytes::from(frame)));
    Ok(stream_body("application/octet-stream", backend.ending.clone(), frames))
}

/// Answered when the cluster is ready.
pub(super) async fn restore(
    State(backend): State<Shared>,
    segments: Segments,
    request: Request,
) -> Result<Json<Value>, Problem> {
    let name = segments.get("cluster", names::cluster)?;
    let pieces = request.into_body().into_data_stream().map_err(io::Error::other).boxed();
    let staged = backend.files.stage_backup(&name, pieces).await?;
    let (staging, distribution) = (staged.path().to_owned(), staged.manifest.distribution);
    // Of its own: a caller that leaves must not take the files from under the tree.
    let restored = tokio::spawn(async move {
        let restored = backend.ask(Command::RestoreTenant { name, staging, distribution }).await;
        drop(staged);
        restored
    });
    let gone = |_| Problem::from(Refusal::Failed("the daemon is ending".to_owned()));
    restored.await.map_err(gone)??;
    Ok(Json(json!({})))
}
