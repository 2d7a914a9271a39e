//! What happens to one Node: is it ours, what does it lack, one patch.
//!
//! The controller calls it for each Node that changed and for all of them when the snapshot changed. Every failure backs off
//! and is tried again; none ends the program.

use super::config::Config;
use super::diff::{UNINITIALIZED, diff, other_provider_id};
use super::node::Node;
use super::snapshot::{Snapshot, SnapshotError};
use crate::one_line::one_line;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// One Node, re-reads included. Past it the attempt has failed and backs off.
const RECONCILE_DEADLINE: Duration = Duration::from_secs(15);
/// A Node that changes under us this often in a row is left to the next event.
const MOST_CONFLICTS: u32 = 5;
const FIRST_BACKOFF: Duration = Duration::from_millis(500);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

#[derive(Debug, thiserror::Error)]
pub(super) enum ReconcileError {
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    #[error("{0}")]
    Api(String),
    #[error("it changed {MOST_CONFLICTS} times while it was being patched")]
    Conflicts,
    #[error("no answer within {} s", RECONCILE_DEADLINE.as_secs())]
    Deadline,
}

/// Doubles with each attempt, spread by up to a quarter so that many Nodes do not come back as one.
pub(super) fn backoff(attempt: u32) -> Duration {
    let full = FIRST_BACKOFF.saturating_mul(1 << attempt.min(10)).min(LONGEST_BACKOFF);
    full.mul_f64(rand::random_range(0.75..=1.0))
}

/// kube's own text repeats the whole status object.
pub(super) fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} ({})", one_line(&status.message), status.code),
        // "ServiceError: client error (Connect)" helps nobody; the innermost source is what happened.
        other => {
            let mut deepest: &dyn std::error::Error = other;
            while let Some(source) = deepest.source() {
                deepest = source;
            }
            deepest.to_string()
        }
    }
}

pub(super) struct Reconciler {
    nodes: Api<Node>,
    cluster: String,
    instances_file: PathBuf,
    max_nodes: usize,
    memory: Mutex<Memory>,
}

/// What was said and tried, so that nothing is logged at every heartbeat.
#[derive(Default)]
struct Memory {
    attempts: HashMap<String, u32>,
    /// The version each Node was patched from, until the watch brings what came of it: asked to look at the old one again, we would
    /// only run into a conflict.
    patched: HashMap<String, Option<String>>,
    reported: BTreeSet<String>,
}

impl Reconciler {
    pub(super) fn new(nodes: Api<Node>, config: &Config) -> Self {
        Self {
            nodes,
            cluster: config.cluster.clone(),
            instances_file: config.instances_file.clone(),
            max_nodes: config.max_nodes,
            memory: Mutex::default(),
        }
    }

    pub(super) async fn reconcile(node: Arc<Node>, this: Arc<Self>) -> Result<Action, ReconcileError> {
        let outcome = tokio::time::timeout(RECONCILE_DEADLINE, this.bring_in_line(&node))
            .await
            .unwrap_or(Err(ReconcileError::Deadline));
        if outcome.is_ok() {
            this.memory().attempts.remove(node.name());
        }
        outcome.map(|()| Action::await_change())
    }

    #[allow(clippy::needless_pass_by_value)] // the controller's signature
    pub(super) fn retry(node: Arc<Node>, error: &ReconcileError, this: Arc<Self>) -> Action {
        let mut memory = this.memory();
        let attempts = memory.attempts.entry(node.name().to_owned()).or_default();
        let wait = backoff(*attempts);
        *attempts += 1;
        tracing::warn!(node = node.name(), attempt = *attempts, %error, "the node is not in line yet");
        Action::requeue(wait)
    }

    async fn bring_in_line(&self, node: &Node) -> Result<(), ReconcileError> {
        let name = node.name();
        if !self.is_ours(name)? {
            if is_uninitialized(node) {
                self.report_once(
                    name,
                    "",
                    "the node waits for a cloud controller and is not in the snapshot",
                );
            }
            return Ok(());
        }
        let version = &node.metadata.resource_version;
        if self.memory().patched.get(name).is_some_and(|patched| patched == version) {
            return Ok(());
        }
        let mut read_again = None;
        for _ in 0..MOST_CONFLICTS {
            let current = read_again.as_ref().unwrap_or(node);
            if let Some(found) = other_provider_id(current, &self.cluster) {
                self.report_once(name, found, "the node has a providerID of another cloud; it is left alone");
            }
            let Some(patch) = diff(current, &self.cluster) else {
                self.memory().patched.remove(name);
                return Ok(());
            };
            match self.nodes.patch(name, &PatchParams::default(), &Patch::Merge(&patch.body)).await {
                Ok(_) => {
                    tracing::info!(node = name, changes = patch.changes.join(", "), "patched");
                    self.memory().patched.insert(name.to_owned(), version.clone());
                    return Ok(());
                }
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    self.memory().patched.remove(name);
                    return Ok(());
                }
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(ReconcileError::Api(reason(&error))),
            }
            match self.nodes.get_opt(name).await {
                Ok(Some(newer)) => read_again = Some(newer),
                Ok(None) => return Ok(()),
                Err(error) => return Err(ReconcileError::Api(reason(&error))),
            }
        }
        Err(ReconcileError::Conflicts)
    }

    /// Read anew for each call: a small local file, and the answer is never older than the question.
    fn is_ours(&self, name: &str) -> Result<bool, SnapshotError> {
        let snapshot = Snapshot::read(&self.instances_file)?;
        if snapshot.len() > self.max_nodes {
            return Err(SnapshotError::TooMany {
                path: self.instances_file.clone(),
                found: snapshot.len(),
                most: self.max_nodes,
            });
        }
        Ok(snapshot.knows(name))
    }

    fn report_once(&self, node: &str, found: &str, what: &'static str) {
        if self.memory().reported.insert(format!("{node} {found} {what}")) {
            tracing::warn!(node, found, "{what}");
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_uninitialized(node: &Node) -> bool {
    let taints = node.spec.taints.as_deref().unwrap_or_default();
    taints.iter().any(|taint| taint.get("key").and_then(Value::as_str) == Some(UNINITIALIZED))
}

#[cfg(test)]
#[path = "reconcile_tests.rs"]
mod tests;
