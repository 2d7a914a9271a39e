//! Every default of the supervision, each with the reason an operator is shown beside it. Figures were measured on two busy
//! cores; docs/supervision.md has the table of what they cost and save.

use super::{RestartKind, Supervised};
use berth_actors::spec::{Reaction, Signal, StopPlan};
use std::time::Duration;

/// A default and its reason.
pub type Reasoned<T> = (T, &'static str);

/// What a component is started, stopped and restarted by.
#[derive(Debug, Clone)]
pub struct Terms {
    pub restart: Reasoned<RestartKind>,
    pub intensity: Reasoned<u32>,
    pub window: Reasoned<Duration>,
    pub base_delay: Reasoned<Duration>,
    pub max_delay: Reasoned<Duration>,
    pub healthy_after: Reasoned<Duration>,
    pub start_deadline: Reasoned<Duration>,
    /// The signal and its repetition are the component's own nature; only the deadline can be set.
    pub stop: StopPlan,
    pub stop_reason: &'static str,
    /// To the death of each step that may come before it.
    pub reactions: Vec<(&'static str, Reasoned<Reaction>)>,
}

pub(crate) const CLEAN_EXITS: &str = "taken with restart = \"transient\" only; there [0]";

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}
const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const fn ride(seconds: u64, reason: &'static str) -> Reasoned<Reaction> {
    (Reaction::RideThrough(s(seconds)), reason)
}

/// After an earlier step is back, everything that rides through serves again within 1.1 s; ten times that before it is
/// restarted after all.
const RIDES: Reasoned<Reaction> =
    ride(15, "serves again within 1.1 s of its return; more than ten times that");
const UNRELATED: Reasoned<Reaction> =
    ride(15, "has nothing to do with it; its gate is looked at all the same");

const STORES: [(&str, Reasoned<Reaction>); 3] =
    [("postgres", RIDES), ("openbao", UNRELATED), ("kine", RIDES)];

/// The stop signal is SIGTERM, sent once.
const fn term(deadline: Duration) -> StopPlan {
    StopPlan { signal: Signal::Term, deadline, repeat_after: None }
}

/// The same, sent again: it was deaf to the first one.
const fn term_twice(deadline: Duration, repeat_after: Duration) -> StopPlan {
    StopPlan { signal: Signal::Term, deadline, repeat_after: Some(repeat_after) }
}

/// What is alike in all; [`terms`] says the rest.
fn common() -> Terms {
    Terms {
        restart: (
            RestartKind::Permanent,
            "none may end unasked, and an exit code proves nothing: clean stops are 0, 1, 255 or a signal",
        ),
        intensity: (
            6,
            "a start after a crash may need two or three tries; twice that is broken, not unlucky",
        ),
        window: (s(900), "holds six starts and stops that all run into their deadlines, with their delays"),
        base_delay: (ms(500), "the first restart is at once; the second lets what it depends on come up"),
        max_delay: (s(30), "a repair by hand is taken up within half a minute"),
        healthy_after: (s(60), "longer than any start here: who was ready for this long has recovered"),
        start_deadline: (s(60), ""),
        stop: term(s(5)),
        stop_reason: "",
        reactions: Vec::new(),
    }
}

/// The terms `of` is on when nobody changed them.
pub fn terms(of: Supervised) -> Terms {
    let common = common();
    match of {
        Supervised::Postgres | Supervised::StorePostgres => Terms {
            intensity: (
                6,
                "old shared memory may still be in use right after a kill: two or three tries are normal",
            ),
            start_deadline: (
                s(60),
                "initdb, then crash recovery: 3 s the first time after a crash, more on a slow disk",
            ),
            // SIGTERM waits for sessions for ever.
            stop: StopPlan { signal: Signal::Int, deadline: s(15), repeat_after: None },
            stop_reason: "SIGINT takes 0.3 s, a checkpoint on a slow disk more",
            ..common
        },
        Supervised::OpenBao => Terms {
            intensity: (6, "it exits at once when its database does not answer"),
            start_deadline: (s(30), "up after 0.2 s"),
            stop: term_twice(s(5), s(2)),
            stop_reason: "20 ms; deaf to SIGTERM while it waits for its database, so it gets a second one after 2 s",
            reactions: vec![("postgres", RIDES)],
            ..common
        },
        Supervised::Kine => Terms {
            intensity: (
                6,
                "of two kines on an empty database one exits at once, and works when started again",
            ),
            start_deadline: (s(30), "listens within 75 ms; the rest is for a database that still comes up"),
            stop: term_twice(s(5), s(2)),
            stop_reason: "0.5 s; while it waits for its database it ends only on the second SIGTERM, after 2 s",
            reactions: vec![
                (
                    "postgres",
                    (
                        Reaction::Restart,
                        "one whose database came back may answer a create it did not make with success",
                    ),
                ),
                ("openbao", UNRELATED),
            ],
            ..common
        },
        Supervised::KubeApiserver => Terms {
            start_deadline: (s(90), "2.4 s on a quiet host; a boot with many clusters shares the cores"),
            stop: term_twice(s(15), s(5)),
            stop_reason: "1.2 s; with a dead kine it ends only on the second SIGTERM, after 5 s",
            reactions: STORES.into(),
            ..common
        },
        Supervised::KubeControllerManager => Terms {
            start_deadline: (s(60), "0.7 s, waiting for the same cores as the API server"),
            stop: term(s(5)),
            stop_reason: "it has no handler: SIGTERM kills it within 70 ms",
            reactions: STORES
                .into_iter()
                .chain([(
                    "kube-apiserver",
                    (
                        Reaction::Restart,
                        "a settled one needs up to 24 s to find a restarted API server; started anew, 0.5 s",
                    ),
                )])
                .collect(),
            ..common
        },
        Supervised::K3s => Terms {
            window: (
                s(1200),
                "holds six starts and stops that all run into their deadlines, with their delays",
            ),
            start_deadline: (
                s(120),
                "API server and controllers in one, after unpacking itself and retries of its own",
            ),
            stop: term_twice(s(20), s(8)),
            stop_reason: "its parts end together; a second SIGTERM after 8 s makes it exit at once",
            reactions: STORES.into(),
            ..common
        },
        Supervised::CloudControllerManager => Terms {
            intensity: (6, "it retries by itself; it ends only on a refusal or a fault of its own"),
            start_deadline: (s(60), "its first list, behind an API server that has just become ready"),
            stop: term(s(5)),
            stop_reason: "it exits within 1 s, API server or not",
            reactions: STORES
                .into_iter()
                .chain([("kube-apiserver", RIDES), ("kube-controller-manager", UNRELATED), ("k3s", RIDES)])
                .collect(),
            ..common
        },
        Supervised::SlotKine => Terms {
            intensity: (10, "cheap to start, and kcp waits for it"),
            window: (
                s(600),
                "holds ten starts and stops that all run into their deadlines, with their delays",
            ),
            base_delay: (ms(200), "everything in the slot waits for it"),
            max_delay: (s(10), "everything in the slot waits for it"),
            healthy_after: (s(30), "as long as its longest start"),
            start_deadline: (s(30), "listens within 75 ms; the rest is for a store that still comes up"),
            stop: term_twice(s(10), s(2)),
            stop_reason: "0.5 s; while it waits for its store it ends only on the second SIGTERM, after 2 s",
            ..common
        },
        Supervised::Kcp => Terms {
            intensity: (5, "each try costs its clients up to two minutes"),
            window: (
                s(1200),
                "holds five starts and stops that all run into their deadlines, with their delays",
            ),
            base_delay: (s(1), "a start takes 6 to 26 s: less would be lost in it"),
            healthy_after: (s(120), "longer than its longest start"),
            start_deadline: (s(120), "6 to 26 s; a fresh store 24 s, and 50 s were seen under load"),
            // No second SIGTERM: it turns a clean stop into exit code 1 and does not help a hung one.
            stop: term(s(20)),
            stop_reason: "1.2 s, 11.4 s when its store is gone; a handover, with no connection left, kills after 5 s",
            reactions: vec![(
                "kine",
                ride(30, "serves within 1 s of a kine's restart, 5.4 s of one of postgres"),
            )],
            ..common
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Life;

    #[test]
    fn starts_that_only_ever_time_out_reach_the_intensity() {
        for of in Supervised::ALL {
            let life = Life::from(&terms(of));
            assert!(life.shortest_window() < life.restart.window, "{of}: {:?}", life.shortest_window());
        }
    }

    #[test]
    fn every_default_has_a_reason() {
        for of in Supervised::ALL {
            let terms = terms(of);
            let reasons = [
                terms.restart.1,
                terms.intensity.1,
                terms.window.1,
                terms.base_delay.1,
                terms.max_delay.1,
                terms.healthy_after.1,
                terms.start_deadline.1,
                terms.stop_reason,
            ];
            let reactions = terms.reactions.iter().map(|(_, (_, reason))| *reason);
            assert!(reasons.into_iter().chain(reactions).all(|reason| !reason.is_empty()), "{of}");
        }
    }
}
