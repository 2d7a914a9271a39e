//! Statuses for tests, built up from quiet defaults.

use berth_actors::handover::{Record, Wish};
use berth_actors::host::DrainReport;
use berth_actors::identity::SlotName;
use berth_actors::status::*;

pub(crate) fn child(name: &str, state: ChildState) -> ChildStatus {
    ChildStatus {
        name: name.to_owned(),
        state,
        pid: None,
        address: None,
        since_ms: 0,
        ready_took_ms: None,
        restarts: 0,
        waits_for: None,
        last_failure: None,
        log_tail: Vec::new(),
        log: None,
        stand_in: None,
    }
}

pub(crate) fn ready(name: &str, pid: u32, port: Option<u16>, since_ms: u64) -> ChildStatus {
    ChildStatus {
        pid: Some(pid),
        address: port.map(|port| ([127, 0, 0, 1], port).into()),
        since_ms,
        ready_took_ms: Some(1234),
        ..child(name, ChildState::Ready)
    }
}

pub(crate) fn chain(name: &str, state: ChainState, children: Vec<ChildStatus>) -> ChainStatus {
    ChainStatus { name: name.to_owned(), state, reason: None, paused: None, children }
}

pub(crate) fn front(slot: SlotName, port: u16) -> FrontStatus {
    let traffic = |slot, open, accepted| SlotTraffic {
        slot,
        open,
        accepted,
        bytes_in: 1_300_000,
        bytes_out: accepted * 100_000,
        draining: 0,
        last_drain: (slot == SlotName::B).then(|| DrainReport {
            idle: 4,
            took_ms: 2001,
            ..DrainReport::default()
        }),
        drains: 0,
        drained: DrainReport::default(),
    };
    FrontStatus {
        listen: Some(([127, 0, 0, 1], 6443).into()),
        target: Some(FrontTarget { slot, address: ([127, 0, 0, 1], port).into() }),
        open: 3,
        parked: 0,
        refused: 0,
        refused_by: Refused::default(),
        left: 0,
        limits: FrontLimits { connections: 10_000, per_peer: 7500, parked: 5000 },
        per_slot: vec![traffic(SlotName::A, 3, 120), traffic(SlotName::B, 0, 0)],
    }
}

pub(crate) fn phases(names: &[(&str, u64)]) -> Vec<PhaseStatus> {
    names
        .iter()
        .map(|(phase, took_ms)| PhaseStatus { phase: (*phase).to_owned(), took_ms: *took_ms })
        .collect()
}

pub(crate) fn handover(outcome: HandoverOutcome, reached: &[(&str, u64)]) -> HandoverStatus {
    let begun = Record::new(SlotName::B, Wish::Plain).status();
    HandoverStatus { outcome, phases: phases(reached), ..begun }
}

fn holding() -> Holding {
    let disk = Disk { bytes: 61 << 20, is_partial: false, measured_ago_ms: 5000 };
    Holding { uid: Some(2_100_000_007), disk: Some(disk) }
}

/// kcp in slot a, one healthy cluster, nothing wrong.
pub(crate) fn healthy() -> TreeStatus {
    let hours = 2 * 3_600_000 + 3 * 60_000;
    TreeStatus {
        store: Some(chain("kcp-store", ChainState::Ready, vec![ready("postgres", 4711, None, hours)])),
        slots: vec![
            chain(
                "slot-a",
                ChainState::Ready,
                vec![
                    ready("kine", 4712, Some(41000), hours),
                    ChildStatus {
                        stand_in: Some("no kcp binary was given (--kcp)".to_owned()),
                        ..ready("kcp", 4713, Some(41001), hours)
                    },
                ],
            ),
            chain(
                "slot-b",
                ChainState::Down,
                vec![child("kine", ChildState::Down), child("kcp", ChildState::Down)],
            ),
        ],
        active_slot: Some(SlotName::A),
        front: front(SlotName::A, 41001),
        tenants: vec![chain(
            "demo",
            ChainState::Ready,
            vec![
                ready("postgres", 52, None, 65_000),
                ready("openbao", 53, Some(8200), 64_000),
                ready("kine", 54, Some(40123), 63_000),
                ready("kube-apiserver", 55, Some(16443), 61_000),
                ready("kube-controller-manager", 56, None, 60_000),
                ready("ccm", 57, None, 59_000),
            ],
        )],
        holdings: [("demo".to_owned(), holding())].into(),
        services: Vec::new(),
        strays: Vec::new(),
        remarks: Vec::new(),
        handover: None,
        handovers: Handovers::default(),
        canary: Some(CanaryStatus {
            slot: SlotName::A,
            state: CanaryState::Seen { took_ms: 4 },
            landed_ago_ms: Some(21_000),
            interval_ms: 60_000,
        }),
        upkeep: None,
    }
}

/// A handover is running, one cluster recovers, one gave up, one was refused.
pub(crate) fn troubled() -> TreeStatus {
    let mut status = healthy();
    status.slots[1] = chain(
        "slot-b",
        ChainState::Starting,
        vec![
            ready("kine", 5001, Some(42000), 1500),
            ChildStatus {
                pid: Some(5002),
                since_ms: 1200,
                waits_for: Some("its port".to_owned()),
                ..child("kcp", ChildState::Starting)
            },
        ],
    );
    status.front.parked = 2;
    status.front.refused_by = Refused { peer_cap: 5, parked_too_long: 2, ..Refused::default() };
    status.front.refused = status.front.refused_by.total();
    status.front.left = 1;
    let slot = &mut status.front.per_slot[0];
    (slot.draining, slot.last_drain) = (3, Some(DrainReport { held: 2, ..DrainReport::default() }));
    status.handover = Some(HandoverStatus {
        drain: Some(DrainReport { held: 5, idle: 1, self_closed: 8, forced: 0, raced: 0, took_ms: 2100 }),
        ..handover(
            HandoverOutcome::RolledBack("slot a was not ready within 120s".to_owned()),
            &[("staged", 12), ("started", 6100)],
        )
    });
    let recovering = &mut status.tenants[0];
    recovering.state = ChainState::Recovering;
    recovering.children[2] = ChildStatus {
        since_ms: 800,
        restarts: 2,
        waits_for: Some("its restart delay (500ms)".to_owned()),
        last_failure: Some("exit code 1".to_owned()),
        log_tail: vec!["fatal: bind: address already in use".to_owned()],
        log: Some("/s/clusters/demo/log/kine.log".to_owned()),
        ..child("kine", ChildState::Backoff)
    };
    recovering.children[5] = ChildStatus {
        restarts: 1,
        last_failure: Some("killed by signal 9".to_owned()),
        ..ready("ccm", 77, None, 5000)
    };
    status.tenants.push(ChainStatus {
        reason: Some("openbao gave up after 6 starts within 120s".to_owned()),
        ..chain(
            "warehouse",
            ChainState::Degraded,
            vec![
                ready("postgres", 61, None, 700_000),
                ChildStatus {
                    since_ms: 12_000,
                    restarts: 6,
                    last_failure: Some("exit code 1".to_owned()),
                    log_tail: (1..=7).map(|n| format!("line {n}\u{1b}[2J")).collect(),
                    log: Some("/s/clusters/warehouse/log/openbao.log".to_owned()),
                    ..child("openbao", ChildState::Failed)
                },
                child("kine", ChildState::Down),
            ],
        )
    });
    status.tenants.push(ChainStatus {
        reason: Some(
            "the datastore belongs to another cluster: run `berth cluster adopt web` if that is meant"
                .to_owned(),
        ),
        ..chain("web", ChainState::Refused, vec![ready("postgres", 62, None, 1000)])
    });
    status
}
