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
    let mut handover = Handover::new(SlotName::A, Wish::Plain);
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

proptest! {
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
