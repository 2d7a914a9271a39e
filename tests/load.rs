//! No failed request across handovers, in the size a test run can afford; `examples/load.rs` takes a hundred.

#[path = "load/mod.rs"]
mod load;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_every_kind_lose_nothing_through_handovers() {
    let broken = load::through_handovers(4, None, &[]).await;
    assert_eq!(broken.as_deref(), Ok(&[][..]));
}
