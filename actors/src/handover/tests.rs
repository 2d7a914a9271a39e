//! The plan against an outside that fails where it can.

use super::*;
use proptest::prelude::*;

/// What the outside does when asked; `fails` names the effect that goes wrong.
fn answer(effect: &Effect, record: &Record, fails: bool) -> Option<Event> {
    let result = if fails { Err("no".to_owned()) } else { Ok(()) };
    Some(match effect {
        Effect::AwaitSettled => Event::Settled(result.map(|()| {
            Some(Lease { holder: "host_a".into(), uid: "u".into(), resource_version: "1".into() })
        })),
        Effect::Stage => Event::Staged(result),
        Effect::Journal(_) => Event::Journalled(result),
        Effect::StartNew => Event::Started(result),
        Effect::Canary => Event::CanarySeen(result),
        Effect::Retarget => Event::Retargeted(result),
        Effect::AwaitNew => Event::NewServes(result.map_err(|reason| Lost { reason, old_serves: true })),
        Effect::TakeBack => Event::TakenBack(result),
        Effect::Drain => Event::Drained(DrainReport::default()),
        Effect::StopOld => Event::Stopped(record.from),
        Effect::StopNew => Event::Stopped(record.to),
        Effect::ReleaseLease { .. } => Event::LeaseReleased(result),
        Effect::AwaitHeld => Event::Held(result),
        Effect::Finish { .. } | Effect::Warn(_) => return None,
    })
}

/// Runs a handover in which the `fail_at`-th effect fails; returns all effects in order.
fn run(fail_at: Option<usize>) -> Vec<Effect> {
    ran(fail_at).0
}

/// The same, and the slot that serves in the end.
fn ran(fail_at: Option<usize>) -> (Vec<Effect>, SlotName) {
    through(Handover::new(SlotName::A, Wish::Plain), fail_at)
}

/// A handover whose daemon ended in `phase`, gone on with.
fn resumed(phase: Phase, fail_at: Option<usize>) -> (Vec<Effect>, SlotName) {
    let old_lease = Some(Lease { holder: "host_a".into(), uid: "u".into(), resource_version: "1".into() });
    let record = Record { phase, old_lease, ..Record::new(SlotName::A, Wish::Plain) };
    through(Handover::resume(record).expect("it is not over"), fail_at)
}

fn through(mut handover: Handover, fail_at: Option<usize>) -> (Vec<Effect>, SlotName) {
    let (mut queue, mut seen) = (handover.step(Event::Begin), Vec::new());
    while !queue.is_empty() {
        let effect = queue.remove(0);
        let fails = fail_at == Some(seen.len());
        if let Some(event) = answer(&effect, handover.record(), fails) {
            queue.extend(handover.step(event));
        }
        seen.push(effect);
    }
    (seen, handover.record().active())
}

#[test]
fn a_handover_drains_before_it_stops_the_old_slot_and_releases_the_lease_after_it_is_gone() {
    let order: Vec<_> =
        run(None).into_iter().filter(|effect| !matches!(effect, Effect::Journal(_))).collect();
    let old = Lease { holder: "host_a".into(), uid: "u".into(), resource_version: "1".into() };
    assert_eq!(
        order,
        [
            Effect::AwaitSettled,
            Effect::Stage,
            Effect::StartNew,
            Effect::Canary,
            Effect::Retarget,
            Effect::Drain,
            Effect::StopOld,
            Effect::ReleaseLease { old },
            Effect::AwaitHeld,
            Effect::Finish { rolled_back: None },
        ]
    );
}

#[test]
fn the_retarget_is_journalled_before_it_is_done() {
    let effects = run(None);
    let journalled = effects.iter().position(|effect| matches!(effect, Effect::Journal(Phase::Retargeted)));
    assert!(journalled < effects.iter().position(|effect| *effect == Effect::Retarget));
}

#[test]
fn what_is_over_is_not_gone_on_with() {
    for phase in [Phase::Done, Phase::RolledBack] {
        assert!(Handover::resume(Record { phase, ..Record::new(SlotName::A, Wish::Plain) }).is_none());
    }
}

#[test]
fn a_daemon_that_ends_while_the_old_slot_stops_is_followed_by_one_that_makes_sure_of_it_first() {
    let (effects, active) = resumed(Phase::OldStopping, None);
    let acts: Vec<_> = effects.iter().filter(|effect| !matches!(effect, Effect::Journal(_))).collect();
    let old = Lease { holder: "host_a".into(), uid: "u".into(), resource_version: "1".into() };
    let wanted = [
        Effect::StopOld,
        Effect::AwaitNew,
        Effect::ReleaseLease { old },
        Effect::AwaitHeld,
        Effect::Finish { rolled_back: None },
    ];
    assert_eq!(acts, wanted.iter().collect::<Vec<_>>());
    assert_eq!(active, SlotName::B);
}

const UNFINISHED: [Phase; 8] = [
    Phase::Staged,
    Phase::Started,
    Phase::Ready,
    Phase::Retargeted,
    Phase::Drained,
    Phase::OldStopping,
    Phase::OldGone,
    Phase::LeaseReleased,
];

proptest! {
    /// From whatever phase, whatever fails: one slot is stopped, the other one serves, and no lease goes before its leader.
    #[test]
    fn a_resumed_handover_ends_with_exactly_one_slot(
        phase in prop::sample::select(UNFINISHED.to_vec()),
        fail_at in prop::option::of(0usize..16),
    ) {
        let (effects, active) = resumed(phase, fail_at);
        let at = |wanted: &dyn Fn(&Effect) -> bool| effects.iter().position(wanted);
        let finished = matches!(effects.last(), Some(Effect::Finish { .. }));
        prop_assert!(finished, "it never finished: {effects:?}");
        let stopped_old = at(&|effect| *effect == Effect::StopOld);
        prop_assert_ne!(stopped_old.is_some(), at(&|effect| *effect == Effect::StopNew).is_some());
        prop_assert_eq!(active, if stopped_old.is_some() { SlotName::B } else { SlotName::A });
        if let Some(released) = at(&|effect| matches!(effect, Effect::ReleaseLease { .. })) {
            prop_assert!(stopped_old.is_some_and(|stopped| stopped < released), "{effects:?}");
        }
        if phase < Phase::Retargeted {
            prop_assert_eq!(active, SlotName::A);
        } else if fail_at.is_none() {
            prop_assert_eq!(active, SlotName::B);
        }
    }

    /// Whatever fails: before the retarget the new slot goes and the old one stays; after it the other way round.
    #[test]
    fn any_single_failure_ends_with_exactly_one_slot(fail_at in 0usize..24) {
        let (effects, active) = ran(Some(fail_at));
        let did = |wanted: &Effect| effects.contains(wanted);
        let finished = matches!(effects.last(), Some(Effect::Finish { .. }));
        prop_assert!(finished, "it never finished");
        prop_assert!(did(&Effect::Retarget) || !did(&Effect::StopOld));
        prop_assert_ne!(did(&Effect::StopNew), did(&Effect::StopOld));
        prop_assert_eq!(active, if did(&Effect::StopOld) { SlotName::B } else { SlotName::A });
    }
}
