//! The canary between handovers: one ConfigMap, written anew through a slot, must come out of a watch on the same slot. A kine
//! whose watches have stalled answers everything else as ever.
//!
//! The object is updated in place and stays: it is small, and the only one. What comes of a silence is the tree's to decide.

use crate::kcp::canary::CONFIG_MAPS;
use crate::kcp::material::Material;
use crate::kcp::session::{Reply, Session};
use crate::kcp::watch::Watch;
use crate::one_line::one_line;
use berth_actors::host::NoPulse;
use hyper::{Method, StatusCode};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

const NAME: &str = "berth-canary";

/// How long the write took to be seen. Cancel-safe: at worst it was written and nobody looked.
pub(crate) async fn run(
    set: &Material,
    address: SocketAddr,
    deadline: Duration,
) -> Result<Duration, NoPulse> {
    run_until(set, address, deadline, sleep).await
}

/// `limit` begins with the write.
async fn run_until<L: Future<Output = ()>>(
    set: &Material,
    address: SocketAddr,
    deadline: Duration,
    limit: impl FnOnce(Duration) -> L,
) -> Result<Duration, NoPulse> {
    let session = Session::new(set, address).map_err(unasked)?;
    let mut watch = timeout(deadline, Watch::open(set, address, &watched(deadline)))
        .await
        .map_err(|_| unasked(format!("no watch at {address} within {} s", deadline.as_secs())))?
        .map_err(unasked)?;
    let written = write(&session).await?;
    let since = Instant::now();
    let seen = async {
        loop {
            match watch.next().await.map_err(unasked)? {
                None => {
                    return Err(unasked(format!("the watch at {address} ended before the write was seen")));
                }
                Some(event) if event.kind == "ERROR" => return Err(unasked(event.object.message)),
                Some(event) if event.object.metadata.resource_version == written => {
                    return Ok(since.elapsed());
                }
                Some(_) => {}
            }
        }
    };
    tokio::select! {
        biased;
        seen = seen => return seen,
        () = limit(deadline) => {}
    }
    // The store may have gone since the write, and then nothing could be seen.
    let read = session.send(Method::GET, &object(), None).await.map_err(unasked)?;
    if read.status == StatusCode::OK && read.resource_version().as_ref() == Some(&written) {
        return Err(NoPulse::Silent);
    }
    Err(unasked(read.unexpected()))
}

/// The resource version of the write.
async fn write(session: &Session) -> Result<String, NoPulse> {
    // A write that changes nothing is none.
    let canary = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": NAME },
        "data": { "beat": Uuid::new_v4().to_string() },
    });
    let mut reply = session.send(Method::PUT, &object(), Some(&canary)).await.map_err(unasked)?;
    if reply.status == StatusCode::NOT_FOUND {
        reply = session.send(Method::POST, CONFIG_MAPS, Some(&canary)).await.map_err(unasked)?;
    }
    version(reply)
}

fn version(reply: Reply) -> Result<String, NoPulse> {
    match reply.resource_version() {
        Some(version) if reply.status.is_success() => Ok(version),
        _ => Err(unasked(reply.unexpected())),
    }
}

fn object() -> String {
    format!("{CONFIG_MAPS}/{NAME}")
}

/// The server ends a watch nobody needs any more.
fn watched(deadline: Duration) -> String {
    let seconds = 2 * deadline.as_secs().max(1);
    format!("{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name%3D{NAME}&timeoutSeconds={seconds}")
}

fn unasked(error: impl std::fmt::Display) -> NoPulse {
    NoPulse::Unasked(one_line(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kcp::fixture::Fixture;
    use crate::kcp::test_server::{Answer, Asked, TestServer};
    use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
    use std::sync::{Arc, Mutex};

    const DEADLINE: Duration = Duration::from_secs(60);

    fn event(version: &str) -> String {
        let object = json!({ "metadata": { "name": NAME, "resourceVersion": version } });
        format!("{}\n", json!({ "type": "MODIFIED", "object": object }))
    }

    /// One slot, whose object is there already or not, and whose watch shows what `notice` passes on.
    struct Slot {
        set: Material,
        server: TestServer,
        asked: Arc<Mutex<Vec<String>>>,
        _open: Arc<Mutex<Option<UnboundedSender<String>>>>,
    }

    async fn slot(exists: bool, read: u16, notice: fn(&UnboundedSender<String>)) -> Slot {
        let (fixture, dir) = (Fixture::new(), tempfile::tempdir().unwrap());
        fixture.write(dir.path());
        let set = Material::read(dir.path()).unwrap();
        let (events, feed) = unbounded();
        let (open, asked) = (Arc::new(Mutex::new(Some(events))), Arc::new(Mutex::new(Vec::new())));
        let (sender, record) = (open.clone(), asked.clone());
        let feed: Mutex<Option<UnboundedReceiver<String>>> = Mutex::new(Some(feed));
        let server = TestServer::start(&fixture, move |asked: Asked| {
            if asked.path.contains("watch=true") {
                return Answer::chunks(feed.lock().unwrap().take().unwrap());
            }
            record.lock().unwrap().push(format!("{} {}", asked.method, asked.path.replace(CONFIG_MAPS, "")));
            let object = json!({ "metadata": { "name": NAME, "resourceVersion": "77" } });
            match asked.method {
                Method::PUT if !exists => Answer::text(404, "{}"),
                Method::GET => Answer::json(read, &object),
                _ => {
                    notice(sender.lock().unwrap().as_ref().unwrap());
                    Answer::json(200, &object)
                }
            }
        })
        .await;
        Slot { set, server, asked, _open: open }
    }

    impl Slot {
        async fn pulse(&self) -> Result<(), NoPulse> {
            run(&self.set, self.server.address, DEADLINE).await.map(drop)
        }

        /// The deadline is over with the write.
        async fn late(&self) -> NoPulse {
            let limit = |_| std::future::ready(());
            run_until(&self.set, self.server.address, DEADLINE, limit).await.unwrap_err()
        }
        fn asked(&self) -> Vec<String> {
            self.asked.lock().unwrap().clone()
        }
    }

    fn both(events: &UnboundedSender<String>) {
        events.unbounded_send(event("76")).unwrap();
        events.unbounded_send(event("77")).unwrap();
    }

    #[tokio::test]
    async fn the_one_object_is_written_in_place_and_made_only_once() {
        let there = slot(true, 200, both).await;
        there.pulse().await.unwrap();
        assert_eq!(there.asked(), ["PUT /berth-canary"]);
        let first = slot(false, 200, both).await;
        first.pulse().await.unwrap();
        assert_eq!(first.asked(), ["PUT /berth-canary", "POST "]);
    }

    #[tokio::test]
    async fn a_write_that_can_be_read_and_is_not_seen_is_a_silence() {
        // An event of an earlier write is none of this one.
        let slot = slot(true, 200, |events| events.unbounded_send(event("76")).unwrap()).await;
        assert_eq!(slot.late().await, NoPulse::Silent);
        assert_eq!(slot.asked().last().map(String::as_str), Some("GET /berth-canary"));
    }

    #[tokio::test]
    async fn a_store_that_went_after_the_write_is_no_silence() {
        let slot = slot(true, 500, |_| {}).await;
        let NoPulse::Unasked(why) = slot.late().await else { panic!("a stall was seen") };
        assert!(why.contains("HTTP 500"), "{why}");
    }
}
