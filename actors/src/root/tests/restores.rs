//! Clusters whose data are there before they are.

use super::*;
use crate::host::Distribution;

fn restore(name: &str) -> Command {
    Command::RestoreTenant {
        name: name.into(),
        staging: "/staged".into(),
        distribution: Distribution::Kubernetes,
    }
}

#[actix::test]
async fn a_restored_cluster_is_placed_once_and_answered_when_it_is_ready() {
    let world = FakeWorld::default().with_tenant("demo");
    let root = started(&world).await;
    until(&root, all_ready).await;
    assert_eq!(root.send(restore("copy")).await.unwrap(), Ok(Reply::Done));
    assert_eq!(world.diary.of("place"), ["copy from /staged"]);
    let status = until(&root, all_ready).await;
    assert_eq!(tenant(&status, "copy").state, ChainState::Ready);
    let again = root.send(restore("copy")).await.unwrap();
    assert!(matches!(again, Err(Refusal::AlreadyExists(_))), "{again:?}");
    assert_eq!(world.diary.of("place").len(), 1, "nothing was placed over what is there");
}

#[actix::test]
async fn a_restore_that_cannot_be_placed_leaves_no_cluster() {
    let world = FakeWorld::default();
    let root = started(&world).await;
    until(&root, all_ready).await;
    world.break_disk(true);
    let failed = root.send(restore("copy")).await.unwrap();
    assert!(matches!(failed, Err(Refusal::Failed(_))), "{failed:?}");
    world.break_disk(false);
    assert!(until(&root, |_| true).await.tenants.is_empty());
    assert_eq!(root.send(restore("copy")).await.unwrap(), Ok(Reply::Done));
}
