//! `berth cluster adopt`: what an operator is shown before she overrides a refusal of the identity guard, and what she agrees to.
//!
//! The guard fills the plan in and carries it out; the tree sees to it that nothing of the cluster's Kubernetes runs meanwhile.

use crate::message::Refusal;
use serde::{Deserialize, Serialize};

/// What would be adopted. Holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AdoptionPlan {
    /// Evidence that differs, a line each; the first is why the guard refuses.
    pub differs: Vec<String>,
    /// What would be written, a line for each place.
    pub changes: Vec<String>,
    /// What to be sure of before.
    pub beware: Vec<String>,
    /// Whose claim would be overridden, where it is not this cluster's own: a uid, or [`UNCLAIMED`]. The consent must name it.
    pub take_over: Option<String>,
    /// Stands for exactly this plan: it changes with the evidence.
    pub digest: String,
}

/// Named in the place of a uid where keys have no owner at all.
pub const UNCLAIMED: &str = "unclaimed";

/// An operator's yes to a plan she saw.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Consent {
    /// [`AdoptionPlan::digest`].
    pub plan: String,
    /// [`AdoptionPlan::take_over`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub take_over: Option<String>,
}

/// Why nothing was planned or adopted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdoptionError {
    /// The guard does not let itself be overridden here.
    #[error("{0}")]
    Refused(String),
    /// The evidence could not be read, or a record not be written.
    #[error("{0}")]
    Failed(String),
}

impl From<AdoptionError> for Refusal {
    fn from(error: AdoptionError) -> Self {
        match error {
            AdoptionError::Refused(reason) => Self::Conflict(reason),
            AdoptionError::Failed(reason) => Self::Failed(reason),
        }
    }
}
