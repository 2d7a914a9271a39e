//! The blue/green plan as a resumable state machine. Pure; [`crate::root`] carries its effects out.
//!
//! Each phase is journalled before the next begins, so a daemon killed anywhere knows which slot the front belongs to:
//! before [`Phase::Retargeted`] the old one, from then on the new one. `Retargeted` is written ahead of the act: both slots
//! serve one store then, so doing it twice costs nothing, and forgetting it would strand the new slot's clients.

use crate::host::{DrainReport, Lease};
use crate::identity::SlotName;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How far a handover has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The active slot leads, and the new slot's root holds the shared material.
    Staged,
    /// The new slot is being started.
    Started,
    /// The new slot is ready and sees the old one's writes.
    Ready,
    Retargeted,
    Drained,
    OldStopping,
    OldGone,
    LeaseReleased,
    Done,
    /// Given up before the retarget; the old slot never stopped serving.
    RolledBack,
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Staged => "staged",
            Self::Started => "started",
            Self::Ready => "ready",
            Self::Retargeted => "retargeted",
            Self::Drained => "drained",
            Self::OldStopping => "old-stopping",
            Self::OldGone => "old-gone",
            Self::LeaseReleased => "lease-released",
            Self::Done => "done",
            Self::RolledBack => "rolled-back",
        })
    }
}

/// The journal's one record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    pub from: SlotName,
    pub to: SlotName,
    pub phase: Phase,
    /// The old slot's lease before the retarget: only a lease with this holder may be deleted.
    pub old_lease: Option<Lease>,
}

impl Record {
    /// The slot the front belongs to.
    pub fn active(&self) -> SlotName {
        match self.phase {
            Phase::Staged | Phase::Started | Phase::Ready | Phase::RolledBack => self.from,
            _ => self.to,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Begin,
    /// The old slot has held the lease for a while (or could not be seen to).
    Settled(Result<Option<Lease>, String>),
    Staged(Result<(), String>),
    Journalled(Result<(), String>),
    /// The new slot's chain is ready, or will not be.
    Started(Result<(), String>),
    CanarySeen(Result<(), String>),
    /// The front is on the new slot; or it could not be put there, and is still on the old one.
    Retargeted(Result<(), String>),
    Drained(DrainReport),
    Stopped(SlotName),
    LeaseReleased(Result<(), String>),
    /// The new slot leads.
    Held(Result<(), String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Wait until `from` has held the lease long enough: a slot started within 1 s of that can hang for good.
    AwaitSettled,
    Stage,
    Journal(Record),
    StartNew,
    Canary,
    Retarget,
    Drain,
    /// With no connection left on it a kcp may hang in its shutdown, so this stop has a short deadline.
    StopOld,
    /// Roll back: the new slot goes.
    StopNew,
    /// Delete the lease, if it is still the old holder's.
    ReleaseLease {
        old: Lease,
    },
    AwaitHeld,
    Finish {
        rolled_back: Option<String>,
    },
    /// Tell the operator of a step that failed without spoiling the handover.
    Warn(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaiting {
    Begin,
    Settled,
    Staged,
    Journal,
    Started,
    Canary,
    Retarget,
    Drain,
    OldStopped,
    Release,
    Held,
    NewStopped,
    Nothing,
}

#[derive(Debug)]
pub struct Handover {
    record: Record,
    awaiting: Awaiting,
    failure: Option<String>,
}

impl Handover {
    pub fn new(from: SlotName) -> Self {
        let record = Record { from, to: from.other(), phase: Phase::Staged, old_lease: None };
        Self { record, awaiting: Awaiting::Begin, failure: None }
    }

    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Feeds one event; returns what to do, in order. An event nobody waits for changes nothing.
    pub fn step(&mut self, event: Event) -> Vec<Effect> {
        match (self.awaiting, event) {
            (Awaiting::Begin, Event::Begin) => self.then(Awaiting::Settled, Effect::AwaitSettled),
            (Awaiting::Settled, Event::Settled(Ok(lease))) => {
                self.record.old_lease = lease;
                self.then(Awaiting::Staged, Effect::Stage)
            }
            (Awaiting::Staged, Event::Staged(Ok(()))) => self.journal(Phase::Staged),
            (Awaiting::Started, Event::Started(Ok(()))) => self.then(Awaiting::Canary, Effect::Canary),
            (Awaiting::Canary, Event::CanarySeen(Ok(()))) => self.journal(Phase::Ready),
            (Awaiting::Settled, Event::Settled(Err(reason)))
            | (Awaiting::Staged, Event::Staged(Err(reason)))
            | (Awaiting::Started, Event::Started(Err(reason)))
            | (Awaiting::Canary, Event::CanarySeen(Err(reason)))
            | (Awaiting::Retarget, Event::Retargeted(Err(reason))) => self.roll_back(reason),
            (Awaiting::Journal, Event::Journalled(Ok(()))) => self.journalled(),
            (Awaiting::Journal, Event::Journalled(Err(reason))) => self.unjournalled(reason),
            (Awaiting::Retarget, Event::Retargeted(Ok(()))) => self.then(Awaiting::Drain, Effect::Drain),
            (Awaiting::Drain, Event::Drained(_)) => self.journal(Phase::Drained),
            (Awaiting::OldStopped, Event::Stopped(slot)) if slot == self.record.from => {
                self.journal(Phase::OldGone)
            }
            (Awaiting::Release, Event::LeaseReleased(result)) => {
                self.warn_then_journal(result, Phase::LeaseReleased)
            }
            (Awaiting::Held, Event::Held(result)) => self.warn_then_journal(result, Phase::Done),
            (Awaiting::NewStopped, Event::Stopped(slot)) if slot == self.record.to => {
                self.journal(Phase::RolledBack)
            }
            _ => Vec::new(),
        }
    }

    fn then(&mut self, awaiting: Awaiting, effect: Effect) -> Vec<Effect> {
        self.awaiting = awaiting;
        vec![effect]
    }

    fn journal(&mut self, phase: Phase) -> Vec<Effect> {
        self.record.phase = phase;
        self.then(Awaiting::Journal, Effect::Journal(self.record.clone()))
    }

    fn warn_then_journal(&mut self, result: Result<(), String>, phase: Phase) -> Vec<Effect> {
        let mut effects: Vec<_> = result.err().map(Effect::Warn).into_iter().collect();
        effects.extend(self.journal(phase));
        effects
    }

    /// A phase is durable: what it allows.
    fn journalled(&mut self) -> Vec<Effect> {
        match self.record.phase {
            Phase::Staged => self.journal(Phase::Started),
            Phase::Started => self.then(Awaiting::Started, Effect::StartNew),
            Phase::Ready => self.journal(Phase::Retargeted),
            Phase::Retargeted => self.then(Awaiting::Retarget, Effect::Retarget),
            Phase::Drained => self.journal(Phase::OldStopping),
            Phase::OldStopping => self.then(Awaiting::OldStopped, Effect::StopOld),
            Phase::OldGone => match self.record.old_lease.clone() {
                Some(old) => self.then(Awaiting::Release, Effect::ReleaseLease { old }),
                None => self.journal(Phase::LeaseReleased),
            },
            Phase::LeaseReleased => self.then(Awaiting::Held, Effect::AwaitHeld),
            Phase::Done | Phase::RolledBack => {
                let rolled_back = self.failure.take();
                self.then(Awaiting::Nothing, Effect::Finish { rolled_back })
            }
        }
    }

    /// Not durable: before the retarget that is a reason to stop; after it there is no way but forward.
    fn unjournalled(&mut self, reason: String) -> Vec<Effect> {
        match self.record.phase {
            Phase::Staged | Phase::Started | Phase::Ready | Phase::Retargeted => self.roll_back(reason),
            _ => {
                let mut effects = vec![Effect::Warn(reason)];
                effects.extend(self.journalled());
                effects
            }
        }
    }

    fn roll_back(&mut self, reason: String) -> Vec<Effect> {
        self.failure = Some(reason);
        self.then(Awaiting::NewStopped, Effect::StopNew)
    }
}

#[cfg(test)]
mod tests {
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
        let mut handover = Handover::new(SlotName::A);
        let (mut queue, mut seen) = (handover.step(Event::Begin), Vec::new());
        while !queue.is_empty() {
            let effect = queue.remove(0);
            let fails = fail_at == Some(seen.len());
            if let Some(event) = answer(&effect, handover.record(), fails) {
                queue.extend(handover.step(event));
            }
            seen.push(effect);
        }
        seen
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
        let journalled = effects.iter().position(
            |effect| matches!(effect, Effect::Journal(record) if record.phase == Phase::Retargeted),
        );
        assert!(journalled < effects.iter().position(|effect| *effect == Effect::Retarget));
    }

    proptest! {
        /// Whatever fails: before the retarget the new slot goes and the old one stays; after it the other way round.
        #[test]
        fn any_single_failure_ends_with_exactly_one_slot(fail_at in 0usize..24) {
            let effects = run(Some(fail_at));
            let did = |wanted: &Effect| effects.contains(wanted);
            let finished = matches!(effects.last(), Some(Effect::Finish { .. }));
            prop_assert!(finished, "it never finished");
            prop_assert!(did(&Effect::Retarget) || !did(&Effect::StopOld));
            prop_assert_ne!(did(&Effect::StopNew), did(&Effect::StopOld));
            let last = effects.iter().rev().find_map(|effect| match effect {
                Effect::Journal(record) => Some(record.clone()),
                _ => None,
            });
            let active = last.map(|record| record.active());
            prop_assert_eq!(active, Some(if did(&Effect::StopOld) { SlotName::B } else { SlotName::A }));
        }
    }
}
