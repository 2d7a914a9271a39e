//! The blue/green plan as a resumable state machine. Pure; [`crate::root`] carries its effects out.
//!
//! Each phase is journalled before the next begins, so a daemon killed anywhere knows which slot the front belongs to:
//! before [`Phase::Retargeted`] the old one, from then on the new one. `Retargeted` is written ahead of the act: both slots
//! serve one store then, so doing it twice costs nothing, and forgetting it would strand the new slot's clients.
//!
//! The next daemon goes on: back before the retarget, forward from it on. It stops the old slot first where that had begun,
//! sees the new one serve, and goes through what is left as if nothing had happened. Only a new slot that cannot be had, beside
//! an old one that still serves, turns a handover round after its retarget.

mod record;
#[cfg(test)]
mod tests;

pub use record::{Phase, Record, Side, Spent, Wish};

use crate::host::{DrainReport, Lease};
use crate::identity::SlotName;

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
    /// After a daemon's end: the new slot serves again, or cannot be had.
    NewServes(Result<(), Lost>),
    /// The front and what both slots share are the old slot's again.
    TakenBack(Result<(), String>),
}

/// A new slot that does not come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    pub reason: String,
    /// There is something to go back to.
    pub old_serves: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Wait until `from` has held the lease long enough: a slot started within 1 s of that can hang for good.
    AwaitSettled,
    Stage,
    /// Makes [`Handover::record`] durable.
    Journal(Phase),
    StartNew,
    Canary,
    /// Puts the front on the new slot, and makes what it was staged with the one both slots share.
    Retarget,
    Drain,
    /// With no connection left on it a kcp may hang in its shutdown, so this stop has a short deadline.
    StopOld,
    /// The opposite of [`Self::Retarget`].
    TakeBack,
    /// Roll back: the new slot goes.
    StopNew,
    /// Wait until the new slot serves under this daemon.
    AwaitNew,
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
    /// To begin where an earlier daemon ended.
    Resume,
    /// For the record of the resumption to be durable.
    Resumed,
    Settled,
    Staged,
    Journal,
    Started,
    Canary,
    Retarget,
    Drain,
    OldStopped,
    NewServes,
    Release,
    Held,
    TakenBack,
    NewStopped,
    Nothing,
}

#[derive(Debug)]
pub struct Handover {
    record: Record,
    awaiting: Awaiting,
    /// An earlier daemon's, and the new slot was not seen to serve under this one.
    unseen: bool,
}

impl Handover {
    pub fn new(from: SlotName, wish: Wish) -> Self {
        Self { record: Record::new(from, wish), awaiting: Awaiting::Begin, unseen: false }
    }

    /// Goes on with what an earlier daemon left in the journal; `None` when nothing is left to do.
    pub fn resume(mut record: Record) -> Option<Self> {
        if record.phase.is_over() {
            return None;
        }
        record.resumed.push(record.phase);
        Some(Self { record, awaiting: Awaiting::Resume, unseen: true })
    }

    pub fn record(&self) -> &Record {
        &self.record
    }

    /// For what the plan does not go by: times, versions, warnings.
    pub fn record_mut(&mut self) -> &mut Record {
        &mut self.record
    }

    /// Feeds one event; returns what to do, in order. An event nobody waits for changes nothing.
    pub fn step(&mut self, event: Event) -> Vec<Effect> {
        match (self.awaiting, event) {
            (Awaiting::Begin, Event::Begin) => self.then(Awaiting::Settled, Effect::AwaitSettled),
            (Awaiting::Resume, Event::Begin) => {
                self.then(Awaiting::Resumed, Effect::Journal(self.record.phase))
            }
            (Awaiting::Resumed, Event::Journalled(result)) => {
                let mut effects: Vec<_> = result.err().map(Effect::Warn).into_iter().collect();
                effects.extend(self.resumed());
                effects
            }
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
            (Awaiting::Drain, Event::Drained(report)) => {
                self.record.drain = Some(report);
                self.journal(Phase::Drained)
            }
            (Awaiting::OldStopped, Event::Stopped(slot)) if slot == self.record.from => {
                self.journal(Phase::OldGone)
            }
            (Awaiting::NewServes, Event::NewServes(seen)) => self.new_seen(seen),
            (Awaiting::Release, Event::LeaseReleased(result)) => {
                self.warn_then_journal(result, Phase::LeaseReleased)
            }
            (Awaiting::Held, Event::Held(result)) => self.warn_then_journal(result, Phase::Done),
            (Awaiting::TakenBack, Event::TakenBack(result)) => {
                let mut effects: Vec<_> = result.err().map(Effect::Warn).into_iter().collect();
                effects.extend(self.then(Awaiting::NewStopped, Effect::StopNew));
                effects
            }
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
        self.then(Awaiting::Journal, Effect::Journal(phase))
    }

    fn warn_then_journal(&mut self, result: Result<(), String>, phase: Phase) -> Vec<Effect> {
        let mut effects: Vec<_> = result.err().map(Effect::Warn).into_iter().collect();
        effects.extend(self.journal(phase));
        effects
    }

    /// The first thing to do for a handover whose daemon ended in this phase.
    fn resumed(&mut self) -> Vec<Effect> {
        match self.record.phase {
            phase @ (Phase::Staged | Phase::Started | Phase::Ready) => {
                self.roll_back(format!("the daemon ended in the phase {phase}"))
            }
            // The old slot may serve yet: it goes once the new one was seen to.
            Phase::Retargeted | Phase::Drained => self.then(Awaiting::NewServes, Effect::AwaitNew),
            // What is recorded as gone is made sure of: nobody may lead but the new slot when the lease is deleted.
            _ => self.then(Awaiting::OldStopped, Effect::StopOld),
        }
    }

    fn new_seen(&mut self, seen: Result<(), Lost>) -> Vec<Effect> {
        let old_is_there = matches!(self.record.phase, Phase::Retargeted | Phase::Drained);
        self.unseen = false;
        match (self.record.phase, seen) {
            (_, Err(Lost { reason, old_serves: true })) if old_is_there => self.roll_back(reason),
            (Phase::Retargeted, Ok(())) => self.then(Awaiting::Retarget, Effect::Retarget),
            (phase, seen) => {
                let mut effects: Vec<_> =
                    seen.err().map(|lost| Effect::Warn(lost.reason)).into_iter().collect();
                effects.extend(match phase {
                    Phase::Retargeted => self.then(Awaiting::Drain, Effect::Drain),
                    _ => self.journalled(),
                });
                effects
            }
        }
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
            // The lease is asked for through the new slot.
            Phase::OldGone if self.unseen => self.then(Awaiting::NewServes, Effect::AwaitNew),
            Phase::OldGone => match self.record.old_lease.clone() {
                Some(old) => self.then(Awaiting::Release, Effect::ReleaseLease { old }),
                None => self.journal(Phase::LeaseReleased),
            },
            Phase::LeaseReleased => self.then(Awaiting::Held, Effect::AwaitHeld),
            Phase::Done | Phase::RolledBack => {
                let rolled_back = self.record.failure.clone();
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
        self.record.failure.get_or_insert(reason);
        if self.record.active() == self.record.from {
            return self.then(Awaiting::NewStopped, Effect::StopNew);
        }
        self.then(Awaiting::TakenBack, Effect::TakeBack)
    }
}
