//! Watches on hyper: resumed from the last resource version, and told of every object exactly once.

use super::board::Board;
use super::line::{Ask, Line};
use super::target::Target;
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::sleep;

/// The resource version of a list, from which nothing is missed.
pub async fn current(target: &Target, line: &Line) -> Result<String, String> {
    let answer = line.ask(&Ask::new(Method::GET, format!("{}?limit=1", target.config_maps()))).await?;
    let list: Value = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
    list["metadata"]["resourceVersion"]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| "a list without version".to_owned())
}

/// Watches from the version `from` on, for ever.
pub async fn run(board: Arc<Board>, target: Arc<Target>, class: usize, from: String) {
    let line = Line::new(Arc::clone(&target), board.classes[class].protocol);
    let mut version = from;
    loop {
        let path = format!(
            "{}?watch=true&allowWatchBookmarks=true&labelSelector=load%3D{}&resourceVersion={version}",
            target.config_maps(),
            board.run
        );
        match line.open(&Ask::new(Method::GET, path)).await {
            Ok(answer) => {
                let gone = follow(&board, class, answer.into_body(), &mut version).await;
                if gone {
                    board.tally(class).relisted += 1;
                    if let Ok(now) = current(&target, &line).await {
                        version = now;
                    }
                } else {
                    board.tally(class).resumed += 1;
                }
            }
            Err(why) => {
                board.failed(class, why, None);
                sleep(Duration::from_millis(50)).await;
            }
        }
        board.tally(class).connections = line.opened.load(Ordering::Relaxed);
    }
}

/// Reads events until the watch ends; true when its version is too old.
async fn follow(board: &Board, class: usize, mut body: Incoming, version: &mut String) -> bool {
    let mut rest = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        rest.extend(frame.into_data().unwrap_or_default());
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let Ok(event) = serde_json::from_slice::<Value>(&line) else { continue };
            let metadata = &event["object"]["metadata"];
            let name = metadata["name"].as_str().unwrap_or_default();
            match event["type"].as_str() {
                Some("ADDED") => board.told(class, name, 0),
                Some("DELETED") => board.told(class, name, 1),
                Some("ERROR") => return event["object"]["code"] == 410,
                _ => {}
            }
            board.answered(class, board.now(), 0);
            if let Some(now) = metadata["resourceVersion"].as_str() {
                now.clone_into(version);
            }
        }
    }
    false
}
