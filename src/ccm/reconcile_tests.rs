//! One Node against a scripted API server: what is sent, and what an answer leads to.

use super::*;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{Method, StatusCode, Uri};
use serde_json::json;
use std::collections::VecDeque;
use tempfile::TempDir;

type Script = Arc<Mutex<(VecDeque<(StatusCode, Value)>, Vec<(Method, Value)>)>>;

/// Answers each request with the next line of its script and remembers what was asked.
struct Scripted {
    reconciler: Arc<Reconciler>,
    script: Script,
    _dir: TempDir,
}

async fn scripted(snapshot: &str, answers: &[(u16, Value)]) -> Scripted {
    let answers = answers.iter().map(|(code, body)| (StatusCode::from_u16(*code).unwrap(), body.clone()));
    let script: Script = Arc::new(Mutex::new((answers.collect(), Vec::new())));
    let app = Router::new()
        .fallback(|State(script): State<Script>, method: Method, _: Uri, body: Bytes| async move {
            let mut script = script.lock().unwrap();
            script.1.push((method, serde_json::from_slice(&body).unwrap_or_default()));
            let (status, body) = script.0.pop_front().expect("one request too many");
            (status, axum::Json(body))
        })
        .with_state(script.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, app).await });

    let dir = tempfile::tempdir().unwrap();
    let instances_file = dir.path().join("nodes.json");
    crate::files::write_atomic(&instances_file, snapshot.as_bytes(), None).unwrap();
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let client = kube::Client::try_from(kube::Config::new(url.parse().unwrap())).unwrap();
    let config = Config {
        kubeconfig: dir.path().join("unused"),
        cluster: "c1".to_owned(),
        instances_file,
        max_nodes: 2,
        pods_per_node: 1,
        resync: Duration::from_mins(1),
    };
    Scripted { reconciler: Arc::new(Reconciler::new(Api::all(client), &config)), script, _dir: dir }
}

impl Scripted {
    async fn reconcile(&self, node: &Value) -> Result<Action, ReconcileError> {
        let node = Arc::new(serde_json::from_value(node.clone()).unwrap());
        Reconciler::reconcile(node, self.reconciler.clone()).await
    }

    fn requests(&self) -> Vec<(Method, Value)> {
        self.script.lock().unwrap().1.clone()
    }
}

const OURS: &str = r#"[{"name":"n1"}]"#;

fn fresh(resource_version: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "resourceVersion": resource_version},
        "spec": {"taints": [{"key": UNINITIALIZED, "effect": "NoSchedule"}]},
    })
}

fn in_line() -> Value {
    let mut node = fresh("9");
    node["metadata"]["labels"] = json!({"node.socialweb.computer/cluster": "c1"});
    node["spec"] = json!({"providerID": "socialweb://c1/n1"});
    node
}

fn status(code: u16) -> (u16, Value) {
    let reason = if code == 404 { "NotFound" } else { "Other" };
    let body = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure", "message": "no", "reason": reason, "code": code,
    });
    (code, body)
}

#[tokio::test]
async fn a_fresh_node_costs_one_request() {
    let api = scripted(OURS, &[(200, in_line())]).await;
    api.reconcile(&fresh("7")).await.unwrap();
    let requests = api.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].0, Method::PATCH);
    assert_eq!(requests[0].1["metadata"]["resourceVersion"], "7");
}

/// The watch is behind: what it brought last is what was patched.
#[tokio::test]
async fn a_node_is_not_patched_again_from_the_version_it_was_patched_from() {
    let api = scripted(OURS, &[(200, in_line()), (200, in_line())]).await;
    api.reconcile(&fresh("7")).await.unwrap();
    api.reconcile(&fresh("7")).await.unwrap();
    assert_eq!(api.requests().len(), 1);
    api.reconcile(&in_line()).await.unwrap();
    api.reconcile(&fresh("10")).await.unwrap();
    assert_eq!(api.requests().len(), 2, "it lost everything again");
}

#[tokio::test]
async fn a_conflict_reads_the_node_again_and_patches_what_is_still_missing() {
    let api = scripted(OURS, &[status(409), (200, fresh("8")), (200, in_line())]).await;
    api.reconcile(&fresh("7")).await.unwrap();
    let sent: Vec<_> =
        api.requests().into_iter().map(|(m, b)| (m, b["metadata"]["resourceVersion"].clone())).collect();
    assert_eq!(sent, [(Method::PATCH, json!("7")), (Method::GET, Value::Null), (Method::PATCH, json!("8"))]);
}

#[tokio::test]
async fn a_conflict_that_another_has_settled_sends_nothing_more() {
    let api = scripted(OURS, &[status(409), (200, in_line())]).await;
    api.reconcile(&fresh("7")).await.unwrap();
    assert_eq!(api.requests().len(), 2);
}

#[tokio::test]
async fn endless_conflicts_are_an_error_and_not_a_hot_loop() {
    let answers: Vec<_> = (0..MOST_CONFLICTS).flat_map(|_| [status(409), (200, fresh("8"))]).collect();
    let api = scripted(OURS, &answers).await;
    assert!(matches!(api.reconcile(&fresh("7")).await, Err(ReconcileError::Conflicts)));
}

#[tokio::test]
async fn a_node_that_went_away_is_nobodys_error() {
    let api = scripted(OURS, &[status(404), status(409), status(404)]).await;
    api.reconcile(&fresh("7")).await.unwrap();
    api.reconcile(&fresh("7")).await.unwrap();
    assert_eq!(api.requests().len(), 3);
}

#[tokio::test]
async fn missing_rights_back_off_longer_each_time_and_are_tried_again() {
    let api = scripted(OURS, &[status(403), status(403), status(403), (200, in_line())]).await;
    let node: Arc<Node> = Arc::new(serde_json::from_value(fresh("7")).unwrap());
    for attempt in 0..3 {
        let error = api.reconcile(&fresh("7")).await.unwrap_err();
        assert_eq!(error.to_string(), "no (403)");
        let action = Reconciler::retry(node.clone(), &error, api.reconciler.clone());
        assert!(action != Action::await_change());
        assert_eq!(api.reconciler.memory().attempts["n1"], attempt + 1);
    }
    api.reconcile(&fresh("7")).await.unwrap();
    assert!(api.reconciler.memory().attempts.is_empty());
}

#[tokio::test]
async fn nothing_is_sent_for_a_node_in_line_a_foreign_one_or_an_unreadable_snapshot() {
    let api = scripted(OURS, &[]).await;
    api.reconcile(&in_line()).await.unwrap();
    for nothing in ["", "[]", r#"[{"name":"n2"}]"#] {
        let api = scripted(nothing, &[]).await;
        api.reconcile(&fresh("7")).await.unwrap();
    }
    for torn in ["[", r#"[{"name":"n1"},{"name":"n2"},{"name":"n3"}]"#] {
        let api = scripted(torn, &[]).await;
        assert!(matches!(api.reconcile(&fresh("7")).await, Err(ReconcileError::Snapshot(_))));
    }
}

#[test]
fn backoff_doubles_to_a_limit() {
    for attempt in [0, 1, 2, 10, 11, u32::MAX] {
        let full = FIRST_BACKOFF.saturating_mul(1 << attempt.min(10)).min(LONGEST_BACKOFF);
        let wait = backoff(attempt);
        assert!(wait <= full && wait >= full.mul_f64(0.74), "{attempt}: {wait:?}");
    }
}
