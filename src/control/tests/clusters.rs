//! Every route that carries a command or touches a cluster's files.

use super::*;
use berth_actors::data_adoption::{AdoptionPlan, Consent};
use berth_actors::handover::{Record, Wish};
use berth_actors::identity::SlotName;
use berth_actors::status::{ChainState, ChainStatus, HandoverOutcome, HandoverStatus};

fn demo() -> ChainStatus {
    ChainStatus {
        name: "demo".to_owned(),
        state: ChainState::Ready,
        reason: None,
        paused: None,
        children: Vec::new(),
    }
}

#[actix::test]
async fn each_request_reaches_the_tree_as_its_command() {
    let harness = Harness::obedient();
    let client = &harness.client;
    let name = || "demo".to_owned();

    client.create_cluster("demo").await.unwrap();
    client.act("demo", Action::Start).await.unwrap();
    client.act("demo", Action::Stop).await.unwrap();
    client.act("demo", Action::Restart).await.unwrap();
    client.act("demo", Action::Retry).await.unwrap();
    client.act("demo", Action::Resume).await.unwrap();
    client.retry("slot-a").await.unwrap();
    let consent = Consent { plan: "d".to_owned(), take_over: Some("u".to_owned()) };
    client.adopt("demo", &consent).await.unwrap();
    client.delete_cluster("demo").await.unwrap();
    client.down().await.unwrap();
    assert_eq!(
        harness.asked(),
        [
            Command::CreateTenant { name: name() },
            Command::StartTenant { name: name() },
            Command::StopTenant { name: name() },
            Command::RestartTenant { name: name() },
            Command::RetryTenant { name: name() },
            Command::ResumeTenant { name: name() },
            Command::RetryTenant { name: "slot-a".to_owned() },
            Command::AdoptData { name: name(), consent },
            Command::DeleteTenant { name: name() },
            Command::Down,
        ]
    );
}

#[actix::test]
async fn a_pause_carries_the_wall_clock() {
    let harness = Harness::obedient();
    harness.client.act("demo", Action::Pause).await.unwrap();
    let asked = harness.asked();
    let [Command::PauseTenant { name, at }] = asked.as_slice() else { panic!("{asked:?}") };
    assert!(name == "demo" && at.ends_with('Z'), "{at}");
}

/// These files have no backup to give: whoever has, marks the tree itself, in its own time.
#[actix::test]
async fn a_backup_that_does_not_come_about_has_marked_nothing() {
    let harness = Harness::obedient();
    let answer = harness.client.back_up("demo").await.map(drop);
    assert!(matches!(refusal(answer), Refusal::NotFound(_)));
    assert_eq!(harness.asked(), []);
}

#[actix::test]
async fn a_backup_that_cannot_be_staged_reaches_no_tree_and_is_read_to_its_end() {
    let harness = Harness::obedient();
    let pieces = futures::stream::iter((0..64).map(|_| Ok(axum::body::Bytes::from(vec![0; 64 << 10]))));
    assert!(matches!(refusal(harness.client.restore("copy", pieces).await), Refusal::NotFound(_)));
    assert_eq!(harness.asked(), []);
}

#[actix::test]
async fn status_and_cluster_list_show_the_tree_as_it_is() {
    let harness = Harness::start(|_| {
        let tenants = vec![demo()];
        Ok(Reply::Status(Box::new(TreeStatus { tenants, ..TreeStatus::default() })))
    });
    assert_eq!(harness.client.status().await.unwrap().tenants, [demo()]);
    assert_eq!(harness.client.clusters().await.unwrap(), [demo()]);
    assert_eq!(harness.asked(), [Command::Status, Command::Status]);
}

#[actix::test]
async fn a_handover_that_was_rolled_back_is_told_as_it_went() {
    fn rolled_back() -> HandoverStatus {
        let outcome = HandoverOutcome::RolledBack("slot b was not ready within 120 s".to_owned());
        HandoverStatus { outcome, ..Record::new(SlotName::A, Wish::Plain).status() }
    }
    let harness = Harness::start(|_| Ok(Reply::Handover(Box::new(rolled_back()))));
    assert_eq!(harness.client.handover(Wish::Plain).await.unwrap(), rolled_back());
    assert_eq!(harness.asked(), [Command::Handover { wish: Wish::Plain }]);
}

#[actix::test]
async fn the_plan_of_an_adoption_arrives_as_it_was_made() {
    fn plan() -> AdoptionPlan {
        AdoptionPlan {
            differs: vec!["CopiedDataDir".to_owned()],
            changes: vec!["the row".to_owned()],
            beware: Vec::new(),
            take_over: Some("uid".to_owned()),
            digest: "d".to_owned(),
        }
    }
    let harness = Harness::start(|_| Ok(Reply::Adoption(Box::new(plan()))));
    assert_eq!(harness.client.plan_adoption("demo").await.unwrap(), plan());
    assert_eq!(harness.asked(), [Command::PlanAdoption { name: "demo".to_owned() }]);
}

#[actix::test]
async fn a_refusal_of_the_tree_arrives_word_for_word() {
    let harness = Harness::start(|command| {
        Err(match command {
            Command::CreateTenant { .. } => Refusal::AlreadyExists("demo exists".to_owned()),
            Command::StartTenant { .. } => Refusal::NotFound("no cluster demo".to_owned()),
            Command::Handover { .. } => Refusal::Conflict("a handover is under way".to_owned()),
            Command::Down => Refusal::Failed("postgres does not stop".to_owned()),
            _ => Refusal::BadRequest("no".to_owned()),
        })
    });
    let client = &harness.client;
    assert_eq!(
        refusal(client.create_cluster("demo").await),
        Refusal::AlreadyExists("demo exists".to_owned())
    );
    assert_eq!(
        refusal(client.act("demo", Action::Start).await),
        Refusal::NotFound("no cluster demo".to_owned())
    );
    assert_eq!(
        refusal(client.handover(Wish::Plain).await),
        Refusal::Conflict("a handover is under way".to_owned())
    );
    assert_eq!(refusal(client.down().await), Refusal::Failed("postgres does not stop".to_owned()));
    assert_eq!(refusal(client.status().await), Refusal::BadRequest("no".to_owned()));
}

#[actix::test]
async fn the_node_snapshot_is_edited_by_name() {
    let harness = Harness::obedient();
    let client = &harness.client;
    assert!(client.nodes("demo").await.unwrap().is_empty());
    client.add_node("demo", "worker-1.rack2").await.unwrap();
    assert_eq!(client.nodes("demo").await.unwrap(), ["worker-1.rack2"]);
    client.remove_node("demo", "worker-1.rack2").await.unwrap();
    assert!(matches!(refusal(client.remove_node("demo", "worker-1.rack2").await), Refusal::NotFound(_)));
    assert!(matches!(refusal(client.nodes("web").await), Refusal::NotFound(_)));
    assert!(harness.asked().is_empty(), "nodes are files, not the tree's business");
}

#[actix::test]
async fn a_kubeconfig_is_handed_out_as_it_lies_there() {
    let harness = Harness::obedient();
    assert_eq!(harness.client.kubeconfig("demo").await.unwrap(), "kind: Config\n");
    assert_eq!(harness.client.kcp_kubeconfig().await.unwrap(), "kind: Config\n");
    assert!(matches!(refusal(harness.client.kubeconfig("web").await), Refusal::NotFound(_)));
}
