//! Random deaths and commands on a whole tree: when they end, everything is where it was wished last, and nobody is left
//! without an answer.

use super::*;
use crate::status::HandoverOutcome;
use proptest::prelude::*;

const TENANTS: [&str; 3] = ["one", "two", "three"];

#[derive(Debug, Clone)]
enum Act {
    /// The process of the n-th component alive dies.
    Death(usize),
    Command(Command),
    Pass(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let tenant = prop::sample::select(TENANTS.to_vec()).prop_map(str::to_owned);
    let command = prop_oneof![
        tenant.clone().prop_map(|name| Command::StartTenant { name }),
        tenant.clone().prop_map(|name| Command::StopTenant { name }),
        tenant.clone().prop_map(|name| Command::RestartTenant { name }),
        tenant.clone().prop_map(|name| Command::RestartStep { name, component: "kine".into() }),
        tenant.clone().prop_map(|name| Command::RetryTenant { name }),
        tenant.clone().prop_map(|name| Command::CreateTenant { name }),
        tenant.prop_map(|name| Command::DeleteTenant { name }),
        Just(handover()),
        Just(Command::AwaitReady),
    ];
    prop_oneof![
        (0usize..20).prop_map(Act::Death),
        command.prop_map(Act::Command),
        (0u64..3000).prop_map(Act::Pass),
    ]
}

async fn pass(millis: u64) {
    for _ in 0..=millis / 50 {
        tokio::time::advance(Duration::from_millis(50)).await;
    }
}

async fn live_through(acts: Vec<Act>) {
    tokio::time::pause();
    let world = FakeWorld::default().with_tenant("one").with_tenant("two");
    world.host.deafen("two/kine");
    let root = start(&world).await;
    let mut answers = Vec::new();
    for act in acts {
        match act {
            Act::Death(index) => {
                let live = world.host.live();
                if let Some(pid) = live.get(index % live.len().max(1)).and_then(|name| world.host.pid(name)) {
                    world.host.exit(pid, ExitStatus::Signal(9));
                }
            }
            Act::Command(command) => answers.push(tokio::spawn(root.send(command))),
            Act::Pass(millis) => pass(millis).await,
        }
    }
    // Longer than any of the machines waits: what is not decided by then never will be.
    pass(100_000).await;
    // What gave up waits for an operator. A retry of anything else is refused.
    for name in TENANTS.into_iter().chain([STORE, "slot-a", "slot-b"]) {
        drop(root.send(Command::RetryTenant { name: name.into() }).await.unwrap());
    }
    let status = until(&root, all_settled).await;
    for answer in answers {
        assert!(answer.is_finished(), "somebody waits for ever");
    }
    let mut live = world.host.live();
    let active = status.active_slot.unwrap().chain();
    let wished = TENANTS.iter().filter(|name| world.desired(name) == Some(true));
    let mut wanted: Vec<_> = wished
        .flat_map(|name| ["postgres", "kine", "apiserver"].map(|component| format!("{name}/{component}")))
        .chain([format!("{STORE}/postgres"), format!("{active}/kine"), format!("{active}/kcp")])
        .collect();
    live.sort();
    wanted.sort();
    assert_eq!(live, wanted, "{status:#?}");
    assert_eq!(world.target(), status.active_slot);
    assert_eq!(world.host.diary.of("twice"), [""; 0]);
    root.send(Command::Down).await.unwrap().unwrap();
    assert_eq!(world.host.live(), [""; 0]);
}

/// Nothing is on its way anywhere.
fn all_settled(status: &TreeStatus) -> bool {
    let handover = status.handover.as_ref();
    let mut chains = status.store.iter().chain(&status.slots).chain(&status.tenants);
    chains.all(|chain| [ChainState::Ready, ChainState::Down].contains(&chain.state))
        && status.front.target.is_some()
        && handover.is_none_or(|handover| handover.outcome != HandoverOutcome::Running)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_happens_the_tree_ends_where_it_was_wished_last(acts in prop::collection::vec(act(), 0..40)) {
        actix_rt::System::new().block_on(live_through(acts));
    }
}
