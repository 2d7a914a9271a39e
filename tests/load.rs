//! No failed request across handovers, in the size a test run can afford; `examples/load.rs` takes a hundred, and more clients.

#[path = "load/mod.rs"]
mod load;

/// All that must never lose a request, however busy the machine is. Not here: many requests at a time on one HTTP/2 connection,
/// and answers of a megabyte, whose server may be kept from going on for longer than a drain can wait.
const CLASSES: [&str; 8] =
    ["h1 get", "h1 post", "h2 get", "h2 post", "new connection", "watch", "kube-rs", "half-closed"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_every_kind_lose_nothing_through_handovers() {
    let classes = CLASSES.map(str::to_owned);
    let outcome = load::through_handovers(3, None, &classes).await;
    assert_eq!(outcome.map(|outcome| outcome.broken), Ok(Vec::new()));
}
