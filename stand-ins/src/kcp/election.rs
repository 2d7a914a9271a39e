//! Runs the lease's rule against the store: campaigns, renews, loses, campaigns again, until the process closes.
//! Writes the log lines from which the daemon tells one slot's leader from the other's.

use super::klog;
use super::lease::{self, Candidate, Move, Record};
use super::state::{Ending, State};
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use time::macros::format_description;
use tokio::sync::watch;

/// Where the lease is.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub namespace: String,
    pub name: String,
}

/// Who has the lease after one try.
enum Holder {
    Us,
    Other(String),
}

/// Campaigns until the process closes; the lease is not released then. `looked` turns true after the first try.
pub(super) async fn run(state: &State, place: &Place, identity: String, looked: &watch::Sender<bool>) {
    let mut leading = false;
    tokio::select! {
        () = campaign(state, place, identity, looked, &mut leading) => {}
        () = state.reached(Ending::Closing) => {}
    }
    if leading {
        klog::info("server.go:866", "\"stopped leading\"");
    }
}

async fn campaign(
    state: &State,
    place: &Place,
    identity: String,
    looked: &watch::Sender<bool>,
    leading: &mut bool,
) {
    let lock = format!("lock=\"{}/{}\"", place.namespace, place.name);
    let mut candidate = Candidate::new(identity);
    loop {
        klog::info(
            "server.go:847",
            &format!(
                "\"(re-)starting leader election\" component=\"kcp\" identity=\"{}\" namespace=\"{}\" name=\"{}\"",
                candidate.identity(),
                place.namespace,
                place.name
            ),
        );
        klog::info("leaderelection.go:258", &format!("\"Attempting to acquire leader lease...\" {lock}"));
        acquire(state, place, &mut candidate, looked).await;
        klog::info("leaderelection.go:272", &format!("\"Successfully acquired lease\" {lock}"));
        klog::info("server.go:855", "\"started leading\"");
        *leading = true;
        looked.send_replace(true);
        while renew(state, place, &mut candidate).await {
            tokio::time::sleep(state.lease_retry).await;
        }
        klog::error(
            "leaderelection.go:436",
            &format!("\"Failed to renew lease\" {lock} err=\"context deadline exceeded\""),
        );
        klog::info("server.go:866", "\"stopped leading\"");
        *leading = false;
    }
}

async fn acquire(state: &State, place: &Place, candidate: &mut Candidate, looked: &watch::Sender<bool>) {
    let mut told = String::new();
    loop {
        match within(lease::RENEW_DEADLINE, attempt(state, place, candidate)).await {
            Ok(Holder::Us) => return,
            Ok(Holder::Other(leader)) => {
                if told != leader {
                    klog::info("server.go:874", &format!("\"leader is someone else\" leader=\"{leader}\""));
                    told = leader;
                }
            }
            Err(error) => klog::error("leaderelection.go:465", &error),
        }
        looked.send_replace(true);
        tokio::time::sleep(lease::candidate_pause(state.lease_retry)).await;
    }
}

/// Whether the lease is still ours, tried until the deadline.
async fn renew(state: &State, place: &Place, candidate: &mut Candidate) -> bool {
    let tries = async {
        while !matches!(attempt(state, place, candidate).await, Ok(Holder::Us)) {
            tokio::time::sleep(state.lease_retry).await;
        }
        Ok(())
    };
    within(lease::RENEW_DEADLINE, tries).await.is_ok()
}

async fn within<T>(deadline: Duration, work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    tokio::time::timeout(deadline, work).await.unwrap_or_else(|_| {
        Err("\"Error retrieving lease lock\" err=\"context deadline exceeded\"".to_owned())
    })
}

/// One look, and the write it asks for. A refused write is an error: somebody else was quicker.
async fn attempt(state: &State, place: &Place, candidate: &mut Candidate) -> Result<Holder, String> {
    let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", place.namespace);
    let path = format!("{leases}/{}", place.name);
    let failed = |what: &str, why: &dyn std::fmt::Display| format!("{what} err={:?}", why.to_string());
    let (status, body) =
        state.upstream.get(&path).await.map_err(|e| failed("\"Error retrieving lease lock\"", &e))?;
    let found: Option<Value> = match status {
        StatusCode::OK => {
            Some(serde_json::from_slice(&body).map_err(|e| failed("\"Error retrieving lease lock\"", &e))?)
        }
        StatusCode::NOT_FOUND => None,
        _ => return Err(failed("\"Error retrieving lease lock\"", &message(&body))),
    };
    let record = found.as_ref().map(read);
    let (method, path, object, what) = match candidate.step(record.as_ref(), Instant::now(), &wall_clock()) {
        Move::Follow(leader) => return Ok(Holder::Other(leader)),
        Move::Create(record) => {
            let object = json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": place.name, "namespace": place.namespace},
                "spec": spec(&record),
            });
            (Method::POST, leases, object, "\"Error initially creating lease lock\"")
        }
        Move::Replace(record) => {
            // With the resource version that was read: of two candidates, one is refused.
            let mut object = found.unwrap_or_default();
            object["spec"] = spec(&record);
            (Method::PUT, path, object, "\"Failed to update lock\"")
        }
    };
    let (status, body) =
        state.upstream.call(method, &path, Some(&object)).await.map_err(|e| failed(what, &e))?;
    if status.is_success() { Ok(Holder::Us) } else { Err(failed(what, &message(&body))) }
}

fn read(object: &Value) -> Record {
    let text = |field: &str| object["spec"][field].as_str().unwrap_or_default().to_owned();
    let number = |field: &str| object["spec"][field].as_u64().unwrap_or_default();
    Record {
        holder: text("holderIdentity"),
        acquired: text("acquireTime"),
        renewed: text("renewTime"),
        transitions: number("leaseTransitions"),
        duration: Duration::from_secs(number("leaseDurationSeconds")),
    }
}

fn spec(record: &Record) -> Value {
    json!({
        "holderIdentity": record.holder,
        "leaseDurationSeconds": record.duration.as_secs(),
        "acquireTime": record.acquired,
        "renewTime": record.renewed,
        "leaseTransitions": record.transitions,
    })
}

fn message(status: &[u8]) -> String {
    serde_json::from_slice::<Value>(status)
        .ok()
        .and_then(|status| status["message"].as_str().map(str::to_owned))
        .unwrap_or_else(|| "no message".to_owned())
}

/// The API's MicroTime.
fn wall_clock() -> String {
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:6]Z");
    crate::clock::now().format(format).unwrap_or_default()
}
