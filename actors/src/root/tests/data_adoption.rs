//! `berth cluster adopt` as the tree sees it: when it is allowed, and what may come in between.

use super::*;
use crate::data_adoption::{AdoptionPlan, Consent};

const REFUSAL: &str = "CopiedDataDir";

async fn refused() -> (FakeWorld, Addr<Root>) {
    let world = FakeWorld::default().with_tenant("demo").with_tenant("other");
    world.guard("demo").set(Some(PrepareError::Refused(REFUSAL.into())));
    let root = started(&world).await;
    let status = until(&root, |status| tenant(status, "demo").state == ChainState::Refused).await;
    assert!(tenant(&status, "demo").reason.as_ref().unwrap().contains(REFUSAL));
    (world, root)
}

async fn plan(root: &Addr<Root>) -> AdoptionPlan {
    match root.send(Command::PlanAdoption { name: "demo".into() }).await.unwrap().unwrap() {
        Reply::Adoption(plan) => *plan,
        other => panic!("{other:?}"),
    }
}

fn adopt(root: &Addr<Root>, plan: &str) -> tokio::task::JoinHandle<Result<Reply, Refusal>> {
    let consent = Consent { plan: plan.to_owned(), take_over: None };
    let answer = root.send(Command::AdoptData { name: "demo".into(), consent });
    tokio::spawn(async move { answer.await.unwrap() })
}

async fn conflict(root: &Addr<Root>) -> String {
    let plan = root.send(Command::PlanAdoption { name: "demo".into() }).await.unwrap();
    match (plan, adopt(root, "any").await.unwrap()) {
        (Err(Refusal::Conflict(one)), Err(Refusal::Conflict(other))) if one == other => one,
        other => panic!("{other:?}"),
    }
}

#[actix::test]
async fn a_refused_tenant_is_adopted_and_ready_and_nobody_else_notices() {
    let (world, root) = refused().await;
    let served = world.host.pid("other/apiserver");
    assert_eq!(world.host.pid("demo/apiserver"), None);
    let digest = plan(&root).await.digest;
    let other = adopt(&root, "another plan").await.unwrap().unwrap_err();
    assert!(matches!(other, Refusal::Conflict(_)), "{other:?}");
    assert_eq!(world.diary.of("adopt"), [""; 0]);

    assert_eq!(adopt(&root, &digest).await.unwrap(), Ok(Reply::Done));
    until(&root, all_ready).await;
    assert_eq!(world.diary.of("adopt"), ["demo"]);
    assert_eq!(world.host.pid("other/apiserver"), served);
}

#[actix::test]
async fn a_tenant_that_was_not_refused_is_not_adopted() {
    let (world, root) = refused().await;
    world.guard("demo").set(None);
    root.send(Command::RetryTenant { name: "demo".into() }).await.unwrap().unwrap();
    assert!(conflict(&root).await.contains("its Kubernetes runs"), "ready");

    root.send(Command::StopTenant { name: "demo".into() }).await.unwrap().unwrap();
    assert!(conflict(&root).await.contains("berth cluster start demo"), "stopped");

    world.guard("demo").set(Some(PrepareError::Fatal("its files cannot be read".into())));
    let start = root.send(Command::StartTenant { name: "demo".into() }).await.unwrap();
    assert!(matches!(start, Err(Refusal::Failed(_))), "{start:?}");
    let why = conflict(&root).await;
    assert!(why.contains("has given up") && why.contains("cannot be read"), "{why}");
    assert_eq!(world.diary.of("adopt"), [""; 0]);
}

#[actix::test]
async fn a_tenant_that_was_stopped_while_its_data_were_adopted_stays_stopped() {
    let (world, root) = refused().await;
    let digest = plan(&root).await.digest;
    world.stall("adopt demo");
    let adopted = adopt(&root, &digest);
    until(&root, |_| world.diary.of("adopt") == ["demo"]).await;
    root.send(Command::StopTenant { name: "demo".into() }).await.unwrap().unwrap();
    world.resume();
    let answer = adopted.await.unwrap().unwrap_err().to_string();
    assert!(answer.contains("are adopted") && answer.contains("another command"), "{answer}");
    let status = until(&root, |_| true).await;
    assert_eq!(tenant(&status, "demo").state, ChainState::Down);
    root.send(Command::StartTenant { name: "demo".into() }).await.unwrap().unwrap();
}
