//! One tenant's database is run by one guard at a time, and a guard that lost it knows.

use super::real_stack::{self, Home, Postgres};
use super::*;
use futures::FutureExt;

#[tokio::test]
async fn a_second_guard_on_the_same_tenant_is_refused_until_the_first_is_gone() {
    let home = Home::new();
    let mut postgres = Postgres::start(&home).await;
    let first = guard("demo", &home.data(), &postgres);
    let second = guard("demo", &home.data(), &postgres);
    passes(&first).await;
    let error = refusal(&second).await;
    let holder = format!("berth pid {}", std::process::id());
    assert!(error.contains("DatabaseInUse") && error.contains(&holder), "{error}");

    // A lock lost with the database is taken again at the next check.
    postgres.stop().await;
    postgres.resume().await;
    passes(&first).await;
    assert!(refusal(&second).await.contains("DatabaseInUse"));

    drop(first);
    passes(&second).await;
}

/// Ends the session of every guard, as an operator's mistake would; the postmaster lives on.
async fn end_sessions(postgres: &Postgres) {
    let ours = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name LIKE 'berth pid%'";
    postgres.sql("kine", ours).await;
}

async fn is_lost(guard: &IdentityGuard) {
    tokio::time::timeout(real_stack::DEADLINE, guard.lost()).await.expect("it does not hear of its loss");
}

#[tokio::test]
async fn a_hold_that_is_lost_is_told_and_taken_again_by_the_next_check() {
    let home = Home::new();
    let mut postgres = Postgres::start(&home).await;
    let (first, second) = (guard("demo", &home.data(), &postgres), guard("demo", &home.data(), &postgres));
    passes(&first).await;
    assert!(first.lost().now_or_never().is_none(), "it is held");

    end_sessions(&postgres).await;
    is_lost(&first).await;
    passes(&first).await;
    assert!(first.lost().now_or_never().is_none(), "it is held again");
    assert!(refusal(&second).await.contains("DatabaseInUse"));

    // One backend that is killed ends the sessions of all.
    let victim = "SELECT pid::text FROM pg_stat_activity WHERE application_name LIKE 'berth pid%'";
    let victim: i32 = postgres.text("kine", victim).await.parse().unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(victim).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    is_lost(&first).await;
    postgres.stop().await;
    postgres.resume().await;
    passes(&first).await;
    assert!(refusal(&second).await.contains("DatabaseInUse"));
}

#[tokio::test]
async fn whoever_took_a_lost_hold_keeps_it_and_the_first_is_refused() {
    let home = Home::new();
    let postgres = Postgres::start(&home).await;
    let (first, second) = (guard("demo", &home.data(), &postgres), guard("demo", &home.data(), &postgres));
    passes(&first).await;
    end_sessions(&postgres).await;
    is_lost(&first).await;
    passes(&second).await;
    let error = refusal(&first).await;
    assert!(error.contains("DatabaseInUse") && error.contains("berth cluster retry demo"), "{error}");
}
