//! The canary of a handover: a ConfigMap written through the old slot must be seen by a watch on the new one. It proves
//! that both serve one store, and that the new slot's watch cache follows it.

use crate::https::HttpsError;
use crate::kcp::defaults::CANARY_DEADLINE;
use crate::kcp::material::Material;
use crate::kcp::session::{Session, Unexpected};
use crate::kcp::watch::{Watch, WatchError};
use hyper::{Method, StatusCode};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::timeout;
use uuid::Uuid;

/// The root workspace always has the namespace `default`.
const CONFIG_MAPS: &str = "/clusters/root/api/v1/namespaces/default/configmaps";

#[derive(Debug, thiserror::Error)]
pub enum CanaryError {
    #[error("canary {name}: {source}")]
    Https { name: String, source: HttpsError },
    #[error("canary {name}: {source}")]
    Unexpected { name: String, source: Unexpected },
    #[error("canary {name}: {source}")]
    Watch { name: String, source: WatchError },
    #[error("canary {name}: the watch on the new slot at {new} ended before the write was seen{why}")]
    Ended { name: String, new: SocketAddr, why: String },
    #[error("canary {name}: written through {old}, not seen at {new} within {} s", .limit.as_secs())]
    NotSeen { name: String, old: SocketAddr, new: SocketAddr, limit: Duration },
}

/// Writes, watches, and deletes what it wrote whatever came of it. Run it where nobody drops it.
pub(crate) async fn run(set: &Material, old: SocketAddr, new: SocketAddr) -> Result<(), CanaryError> {
    run_within(set, old, new, CANARY_DEADLINE).await
}

async fn run_within(
    set: &Material,
    old: SocketAddr,
    new: SocketAddr,
    limit: Duration,
) -> Result<(), CanaryError> {
    let name = format!("berth-canary-{}", Uuid::new_v4().simple());
    let https = |source| CanaryError::Https { name: name.clone(), source };
    let session = Session::new(set, old).map_err(https)?;
    let seen = timeout(limit, fly(&session, set, new, &name)).await.unwrap_or(Err(CanaryError::NotSeen {
        name: name.clone(),
        old,
        new,
        limit,
    }));
    // Also after a create without an answer: it may have been carried out.
    let deleted = session.send(Method::DELETE, &format!("{CONFIG_MAPS}/{name}"), None).await;
    seen?;
    let reply = deleted.map_err(https)?;
    if reply.status.is_success() || reply.status == StatusCode::NOT_FOUND {
        return Ok(());
    }
    Err(CanaryError::Unexpected { name, source: reply.unexpected() })
}

async fn fly(old: &Session, set: &Material, new: SocketAddr, name: &str) -> Result<(), CanaryError> {
    let watch_failed = |source| CanaryError::Watch { name: name.to_owned(), source };
    let seconds = CANARY_DEADLINE.as_secs();
    let path =
        format!("{CONFIG_MAPS}?watch=true&fieldSelector=metadata.name%3D{name}&timeoutSeconds={seconds}");
    let mut watch = Watch::open(set, new, &path).await.map_err(watch_failed)?;

    let canary = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name } });
    let reply = old
        .send(Method::POST, CONFIG_MAPS, Some(&canary))
        .await
        .map_err(|source| CanaryError::Https { name: name.to_owned(), source })?;
    if reply.status != StatusCode::CREATED {
        return Err(CanaryError::Unexpected { name: name.to_owned(), source: reply.unexpected() });
    }
    let written: serde_json::Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let uid = written["metadata"]["uid"].as_str().unwrap_or_default();

    let ended = |why: String| CanaryError::Ended { name: name.to_owned(), new, why };
    while let Some(event) = watch.next(new).await.map_err(watch_failed)? {
        if event.kind == "ERROR" {
            return Err(ended(format!(": {}", event.object.message)));
        }
        // By uid: seen means this very write, not an object of the same name in some other store.
        if !uid.is_empty() && event.object.metadata.uid == uid {
            return Ok(());
        }
    }
    Err(ended(String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kcp::fixture::Fixture;
    use crate::kcp::test_server::{Answer, Asked, TestServer};
    use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
    use std::sync::{Arc, Mutex};

    const PATIENCE: Duration = Duration::from_secs(10);

    /// Two slots: what is written to the old one is told to `notice`, which may pass it on to the watch on the new one.
    struct Slots {
        set: Material,
        old: TestServer,
        new: TestServer,
        asked: Arc<Mutex<Vec<String>>>,
    }

    impl Slots {
        async fn new(notice: impl Fn(&UnboundedSender<String>, &str) + Send + Sync + 'static) -> Self {
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
            let feed: Mutex<Option<UnboundedReceiver<String>>> = Mutex::new(Some(feed));
            let new = TestServer::start(&fixture, move |asked: Asked| {
                assert!(asked.path.contains("watch=true") && asked.authorization.is_some());
                Answer::chunks(feed.lock().unwrap().take().unwrap())
            })
            .await;
            Self { set, old, new, asked }
        }

        async fn canary(&self, limit: Duration) -> Result<(), CanaryError> {
            run_within(&self.set, self.old.address, self.new.address, limit).await
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
        let slots = Slots::new(|events, uid| {
            let added = event("ADDED", uid);
            let (head, tail) = added.split_at(20);
            events.unbounded_send(event("ADDED", "another")).unwrap();
            events.unbounded_send(head.to_owned()).unwrap();
            events.unbounded_send(tail.to_owned()).unwrap();
        })
        .await;
        slots.canary(PATIENCE).await.unwrap();
        assert_eq!(slots.requests(), ["POST ", "DELETE /"]);
    }

    #[tokio::test]
    async fn a_watch_that_ends_or_reports_an_error_fails_the_canary_and_leaves_nothing_behind() {
        let ended = Slots::new(|_, _| {}).await;
        let said = ended.canary(PATIENCE).await.unwrap_err().to_string();
        assert!(said.contains("ended before the write was seen"), "{said}");
        assert_eq!(ended.requests(), ["POST ", "DELETE /"]);

        let error = Slots::new(|events, _| {
            let status = json!({ "type": "ERROR", "object": { "kind": "Status", "message": "too old" } });
            events.unbounded_send(format!("{status}\n")).unwrap();
        })
        .await;
        let said = error.canary(PATIENCE).await.unwrap_err().to_string();
        assert!(said.ends_with("seen: too old"), "{said}");
        assert_eq!(error.requests(), ["POST ", "DELETE /"]);
    }

    #[tokio::test]
    async fn a_write_that_is_never_seen_fails_at_the_limit_and_is_deleted() {
        let kept = Arc::new(Mutex::new(None));
        let keeper = kept.clone();
        let slots = Slots::new(move |events, _| *keeper.lock().unwrap() = Some(events.clone())).await;
        let said = slots.canary(Duration::from_millis(300)).await.unwrap_err().to_string();
        assert!(said.contains("not seen at"), "{said}");
        assert_eq!(slots.requests(), ["POST ", "DELETE /"]);
    }
}
