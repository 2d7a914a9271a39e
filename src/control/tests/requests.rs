//! What is refused before it reaches anyone, and under which status code: raw HTTP, as a script would send it.

use super::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

impl Harness {
    /// Sends one request and reads to the end; the status code and the body.
    async fn raw(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = UnixStream::connect(self.client.socket()).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

#[actix::test]
async fn a_malformed_request_is_refused_with_its_reason_and_reaches_nobody() {
    let harness = Harness::obedient();
    let table = [
        ("POST", "/v1/clusters", r#"{"name":"demo","size":3}"#, 400, "unknown field `size`"),
        ("POST", "/v1/clusters", r#"{"name":"demo"} x"#, 400, "trailing characters"),
        ("POST", "/v1/clusters", "{}", 400, "missing field `name`"),
        ("POST", "/v1/clusters", "", 400, "JSON"),
        ("POST", "/v1/clusters", r#"{"name":"../x"}"#, 400, "is not a name"),
        ("POST", "/v1/clusters", r#"{"name":"slot-a"}"#, 400, "choose another"),
        ("DELETE", "/v1/clusters/UP", "", 400, "is not a name"),
        ("DELETE", "/v1/clusters/..%2f..%2fetc", "", 400, "is not a name"),
        ("POST", "/v1/clusters/demo/start", "{}", 400, "takes no body"),
        ("POST", "/v1/clusters/demo/explode", "", 404, "explode"),
        ("POST", "/v1/chains/..%2fx/retry", "", 400, "is not a name"),
        ("POST", "/v1/chains/slot-a/retry", "{}", 400, "takes no body"),
        ("POST", "/v1/down", "x", 400, "takes no body"),
        ("PUT", "/v1/clusters/demo/nodes/a..b", "", 400, "is not a name"),
        ("GET", "/v1/logs/demo/..%2fsecret", "", 400, "is not a name"),
        ("GET", "/v1/logs/demo/kine?lines=-1", "", 400, "lines"),
        ("GET", "/v1/logs/demo/kine?line=1", "", 400, "unknown field `line`"),
        ("GET", "/v1/events?follow=perhaps", "", 400, "follow"),
        ("GET", "/v2/status", "", 404, "/v2/status"),
        ("DELETE", "/v1/status", "", 405, "DELETE"),
        ("PUT", "/v1/clusters", "", 405, "PUT"),
    ];
    for (method, path, body, status, reason) in table {
        let (got, answer) = harness.raw(method, path, body).await;
        assert_eq!(got, status, "{method} {path} {body}: {answer}");
        let refusal: Refusal = serde_json::from_str(&answer).unwrap();
        assert!(refusal.to_string().contains(reason), "{method} {path} {body}: {refusal}");
    }
    assert!(harness.asked().is_empty());
}

#[actix::test]
async fn each_kind_of_refusal_has_its_status_code() {
    let harness = Harness::start(|command| {
        let Command::CreateTenant { name } = command else { return Ok(Reply::Done) };
        Err(match name.as_str() {
            "missing" => Refusal::NotFound(String::new()),
            "there" => Refusal::AlreadyExists(String::new()),
            "busy" => Refusal::Conflict(String::new()),
            "wrong" => Refusal::BadRequest(String::new()),
            _ => Refusal::Failed(String::new()),
        })
    });
    for (name, status) in [("missing", 404), ("there", 409), ("busy", 409), ("wrong", 400), ("broken", 500)] {
        let (got, _) = harness.raw("POST", "/v1/clusters", &format!(r#"{{"name":"{name}"}}"#)).await;
        assert_eq!(got, status, "{name}");
    }
}

#[actix::test]
async fn a_body_over_the_limit_is_not_read() {
    let harness = Harness::obedient();
    let body = format!(r#"{{"name":"{}"}}"#, "x".repeat(20_000));
    let (status, answer) = harness.raw("POST", "/v1/clusters", &body).await;
    assert_eq!(status, 413, "{answer}");
    assert!(harness.asked().is_empty());
}

#[actix::test]
async fn a_tree_that_answers_with_the_wrong_thing_is_named_and_not_believed() {
    let harness = Harness::start(|_| Ok(Reply::Done));
    let error = refusal(harness.client.status().await);
    assert!(error.to_string().contains("not what was asked"), "{error}");
}

/// Never answers.
struct StuckTree;

impl Actor for StuckTree {
    type Context = Context<Self>;
}

impl Handler<Command> for StuckTree {
    type Result = actix::ResponseFuture<Result<Reply, Refusal>>;
    fn handle(&mut self, _: Command, _: &mut Self::Context) -> Self::Result {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_tree_that_does_not_answer_is_reported_at_the_deadline_of_the_request() {
    use crate::control::deadline;
    use hyper::service::Service;
    use hyper_util::service::TowerToHyperService;

    let asking = async {
        let router = super::super::routes::router(super::super::routes::Backend {
            daemon: DaemonDesk::open().0,
            tree: StuckTree.start().recipient(),
            files: Arc::new(FakeFiles { dir: PathBuf::new(), nodes: Mutex::default() }),
            events: EventHub::new(),
            ending: CancellationToken::new(),
        });
        let service = TowerToHyperService::new(router);
        for (method, path, deadline) in [
            ("GET", "/v1/status", deadline::READ),
            ("POST", "/v1/clusters/demo/start", deadline::CLUSTER),
            ("POST", "/v1/kcp/handover", deadline::HANDOVER),
            ("POST", "/v1/down", deadline::DOWN),
        ] {
            let begun = tokio::time::Instant::now();
            let request = hyper::Request::builder().method(method).uri(path);
            let answer = service.call(request.body(axum::body::Body::empty()).unwrap()).await.unwrap();
            assert_eq!(answer.status(), 504, "{path}");
            assert_eq!(begun.elapsed().as_secs(), deadline.as_secs(), "{path}");
            let body = axum::body::to_bytes(answer.into_body(), 4096).await.unwrap();
            let refusal: Refusal = serde_json::from_slice(&body).unwrap();
            assert!(refusal.to_string().contains("it goes on"), "{refusal}");
        }
    };
    tokio::task::LocalSet::new().run_until(asking).await;
}
