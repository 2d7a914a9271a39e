//! The canary of a handover: a ConfigMap written through the old slot must be seen by a watch on the new one. It proves
//! that both serve one store, and that the new slot's watch cache follows it.

use crate::https::HttpsError;
use crate::kcp::defaults::CANARY_DEADLINE;
use crate::kcp::material::Material;
use crate::kcp::session::{Session, Unexpected};
use crate::kcp::watch::{Watch, WatchError};
use crate::one_line::one_line;
use hyper::{Method, StatusCode};
use serde_json::json;
use std::net::SocketAddr;
use tokio::time::sleep;
use uuid::Uuid;

/// The root workspace always has the namespace `default`.
pub(super) const CONFIG_MAPS: &str = "/clusters/root/api/v1/namespaces/default/configmaps";

#[derive(Debug, thiserror::Error)]
#[error("the canary from {old} to {new} failed: {why}")]
pub struct CanaryError {
    old: SocketAddr,
    new: SocketAddr,
    #[source]
    why: Failure,
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Https(#[from] HttpsError),
    #[error(transparent)]
    Unexpected(#[from] Unexpected),
    #[error(transparent)]
    Watch(#[from] WatchError),
    #[error("the watch on the new slot ended before the write was seen")]
    Ended,
    #[error("the watch on the new slot ended with an error: {0}")]
    Reported(String),
    #[error("the write was not seen within {} s", CANARY_DEADLINE.as_secs())]
    NotSeen,
}

/// Writes, watches, and deletes what it wrote whatever came of it. Run it where nobody drops it.
pub(crate) async fn run(set: &Material, old: SocketAddr, new: SocketAddr) -> Result<(), CanaryError> {
    run_until(set, old, new, sleep(CANARY_DEADLINE)).await
}

async fn run_until(
    set: &Material,
    old: SocketAddr,
    new: SocketAddr,
    limit: impl Future<Output = ()>,
) -> Result<(), CanaryError> {
    let name = format!("berth-canary-{}", Uuid::new_v4().simple());
    let outcome = async {
        let writer = Session::new(set, old)?;
        let seen = tokio::select! {
            seen = fly(&writer, set, new, &name) => seen,
            () = limit => Err(Failure::NotSeen),
        };
        // Also after a create without an answer: it may have been carried out.
        let deleted = writer.send(Method::DELETE, &format!("{CONFIG_MAPS}/{name}"), None).await;
        seen?;
        let reply = deleted?;
        let is_gone = reply.status.is_success() || reply.status == StatusCode::NOT_FOUND;
        if is_gone { Ok(()) } else { Err(reply.unexpected().into()) }
    };
    outcome.await.map_err(|why| CanaryError { old, new, why })
}

async fn fly(old: &Session, set: &Material, new: SocketAddr, name: &str) -> Result<(), Failure> {
    let seconds = CANARY_DEADLINE.as_secs();
    let path =
        format!("{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name%3D{name}&timeoutSeconds={seconds}");
    let mut watch = Watch::open(set, new, &path).await?;

    let canary = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    let written = old.send(Method::POST, CONFIG_MAPS, Some(&canary)).await?;
    if written.status != StatusCode::CREATED {
        return Err(written.unexpected().into());
    }
    let written = written.uid();

    // A read shows that both use one store, and makes the new slot's kine look for new rows at once, which saves the
    // handover the rest of its poll interval. Only the watch shows that the new slot follows by itself.
    let read = Session::new(set, new)?.send(Method::GET, &format!("{CONFIG_MAPS}/{name}"), None).await?;
    if read.status != StatusCode::OK {
        return Err(read.unexpected().into());
    }
    loop {
        match watch.next().await? {
            None => return Err(Failure::Ended),
            Some(event) if event.kind == "ERROR" => {
                return Err(Failure::Reported(one_line(event.object.message)));
            }
            // By uid: seen means this very write, not an object of the same name in some other store.
            Some(event) if written.as_ref() == Some(&event.object.metadata.uid) => return Ok(()),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kcp::fixture::Fixture;
    use crate::kcp::test_server::{Answer, Asked, TestServer};
    use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
    use std::future::pending;
    use std::sync::{Arc, Mutex};
    use tokio::sync::Notify;

    /// Two slots: what is written to the old one is told to `notice`, which may pass it on to the watch on the new one.
    struct Slots {
        set: Material,
        old: TestServer,
        new: TestServer,
        asked: Arc<Mutex<Vec<String>>>,
        /// The new slot was asked for the written object.
        read: Arc<Notify>,
    }

    impl Slots {
        async fn sharing_a_store(
            notice: impl Fn(&UnboundedSender<String>, &str) + Send + Sync + 'static,
        ) -> Self {
            Self::new(200, notice).await
        }

        async fn new(
            read_status: u16,
            notice: impl Fn(&UnboundedSender<String>, &str) + Send + Sync + 'static,
        ) -> Self {
            let fixture = Fixture::new();
            let dir = tempfile::tempdir().unwrap();
            fixture.write(dir.path());
            let set = Material::read(dir.path()).unwrap();
            let asked = Arc::new(Mutex::new(Vec::new()));
            let (events, feed) = unbounded();
            let events = Mutex::new(Some(events));
            let record = asked.clone();
            let old = TestServer::start(&fixture, move |asked: Asked| {
                let path = asked.path.replace(CONFIG_MAPS, "");
                record.lock().unwrap().push(format!("{} {path}", asked.method));
                match asked.method {
                    Method::POST => {
                        if let Some(events) = events.lock().unwrap().take() {
                            notice(&events, "0c1d");
                        }
                        Answer::json(201, &json!({ "metadata": { "uid": "0c1d" } }))
                    }
                    _ => Answer::text(200, "{}"),
                }
            })
            .await;
            let read = Arc::new(Notify::new());
            let has_read = read.clone();
            let feed: Mutex<Option<UnboundedReceiver<String>>> = Mutex::new(Some(feed));
            let new = TestServer::start(&fixture, move |asked: Asked| {
                assert!(asked.authorization.is_some());
                if asked.path.contains("watch=true") {
                    Answer::chunks(feed.lock().unwrap().take().unwrap())
                } else {
                    has_read.notify_one();
                    Answer::text(read_status, "{}")
                }
            })
            .await;
            Self { set, old, new, asked, read }
        }

        async fn canary(&self, limit: impl Future<Output = ()>) -> Result<(), CanaryError> {
            run_until(&self.set, self.old.address, self.new.address, limit).await
        }

        /// The requests to the old slot, with the canary's random name left out.
        fn requests(&self) -> Vec<String> {
            let asked = self.asked.lock().unwrap();
            asked.iter().map(|line| line.split("berth-canary-").next().unwrap().to_owned()).collect()
        }
    }

    fn event(kind: &str, uid: &str) -> String {
        format!(
            "{}\n",
            json!({ "type": kind, "object": { "kind": "ConfigMap", "metadata": { "uid": uid } } })
        )
    }

    #[tokio::test]
    async fn a_write_that_is_seen_on_the_other_slot_is_deleted_again() {
        let slots = Slots::sharing_a_store(|events, uid| {
            let added = event("ADDED", uid);
            let (head, tail) = added.split_at(20);
            events.unbounded_send(event("ADDED", "another")).unwrap();
            events.unbounded_send(head.to_owned()).unwrap();
            events.unbounded_send(tail.to_owned()).unwrap();
        })
        .await;
        slots.canary(pending()).await.unwrap();
        assert_eq!(slots.requests(), ["POST ", "DELETE /"]);
    }

    #[tokio::test]
    async fn a_watch_that_ends_or_reports_an_error_fails_the_canary_and_leaves_nothing_behind() {
        let ended = Slots::sharing_a_store(|_, _| {}).await;
        let said = ended.canary(pending()).await.unwrap_err().to_string();
        assert!(said.ends_with("ended before the write was seen"), "{said}");
        assert_eq!(ended.requests(), ["POST ", "DELETE /"]);

        let error = Slots::sharing_a_store(|events, _| {
            let status = json!({ "type": "ERROR", "object": { "kind": "Status", "message": "too old" } });
            events.unbounded_send(format!("{status}\n")).unwrap();
        })
        .await;
        let said = error.canary(pending()).await.unwrap_err().to_string();
        assert!(said.ends_with("with an error: too old"), "{said}");
        assert_eq!(error.requests(), ["POST ", "DELETE /"]);
    }

    #[tokio::test]
    async fn a_write_that_is_never_seen_fails_at_the_limit_and_is_deleted() {
        let kept = Arc::new(Mutex::new(None));
        let keeper = kept.clone();
        let slots =
            Slots::sharing_a_store(move |events, _| *keeper.lock().unwrap() = Some(events.clone())).await;
        let said = slots.canary(slots.read.notified()).await.unwrap_err().to_string();
        assert!(said.ends_with("the write was not seen within 10 s"), "{said}");
        assert_eq!(slots.requests(), ["POST ", "DELETE /"]);
    }

    #[tokio::test]
    async fn a_slot_on_another_store_is_found_out_at_once() {
        let slots = Slots::new(404, |events, uid| events.unbounded_send(event("ADDED", uid)).unwrap()).await;
        let said = slots.canary(pending()).await.unwrap_err().to_string();
        assert!(said.contains("HTTP 404") && said.contains(&slots.new.address.to_string()), "{said}");
        assert_eq!(slots.requests(), ["POST ", "DELETE /"]);
    }
}
