//! `berth cluster adopt` on the real records: looks, plans, and carries a plan out that was agreed to.
//!
//! The row is written first, in one statement, under the guard's own lock; it says which file it overrides. From that moment on
//! any guard finishes the adoption as it finishes a first boot, so a crash in between loses nothing and trusts nobody else.

use super::database::{DatabaseError, Session};
use super::guard::{CHECK_DEADLINE, IdentityGuard};
use super::identity::Owner;
use super::plan::{NotAdoptable, Planned, plan};
use crate::fault;
use berth_actors::data_adoption::{AdoptionError, AdoptionPlan, Consent};

impl IdentityGuard {
    /// `neighbours`: the other clusters of this daemon, whose data are never adopted. Changes nothing.
    pub async fn plan_adoption(&self, neighbours: &[Owner]) -> Result<AdoptionPlan, AdoptionError> {
        let planned = async { self.planned(&self.free_session().await?, neighbours).await };
        self.in_time(planned).await.map(|planned| planned.plan)
    }

    /// Cancel-safe: an adoption that was begun is finished by the next check.
    pub async fn adopt(&self, consent: &Consent, neighbours: &[Owner]) -> Result<(), AdoptionError> {
        self.in_time(async {
            let session = self.free_session().await?;
            let Planned { plan, row } = self.planned(&session, neighbours).await?;
            self.agreed(&plan, consent)?;
            session.adopt(&row).await.map_err(|error| self.failed(error))?;
            fault::point("identity-adopted");
            self.finish(&session).await.map_err(|error| self.failed(error))
        })
        .await
    }

    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, AdoptionError>>,
    ) -> Result<T, AdoptionError> {
        tokio::time::timeout(CHECK_DEADLINE, work)
            .await
            .unwrap_or_else(|_| Err(self.failed(self.no_answer())))
    }

    /// A session with the lock: whoever runs this cluster, here or elsewhere, holds it.
    async fn free_session(&self) -> Result<Session, AdoptionError> {
        self.open().await.map_err(|error| match error {
            DatabaseError::Held(by) => self.no(format_args!(
                "DatabaseInUse: another guard runs these data, {by}; stop that one first: a lock is never overridden"
            )),
            other => self.failed(other),
        })
    }

    async fn planned(&self, session: &Session, neighbours: &[Owner]) -> Result<Planned, AdoptionError> {
        let evidence = self.evidence(session).await.map_err(|error| self.failed(error))?;
        plan(&evidence, neighbours).map_err(|reason: NotAdoptable| self.no(reason))
    }

    fn agreed(&self, plan: &AdoptionPlan, consent: &Consent) -> Result<(), AdoptionError> {
        if plan.digest != consent.plan {
            return Err(self.no("what differs has changed since it was shown: look again"));
        }
        match (&plan.take_over, &consent.take_over) {
            (planned, agreed) if planned == agreed => Ok(()),
            (Some(theirs), _) => Err(self.no(format_args!(
                "the data are not its own: to take them over all the same, say --take-over {theirs}"
            ))),
            (None, _) => Err(self.no("nobody else's identity is in the way: leave --take-over out")),
        }
    }

    fn no(&self, reason: impl std::fmt::Display) -> AdoptionError {
        AdoptionError::Refused(format!("cluster {} was not adopted: {reason}", self.cluster()))
    }

    fn failed(&self, reason: impl std::fmt::Display) -> AdoptionError {
        AdoptionError::Failed(format!("cluster {} was not adopted: {reason}", self.cluster()))
    }
}
