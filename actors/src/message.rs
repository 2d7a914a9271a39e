//! What the outside asks of the tree, and what it answers. The control API maps one request to one [`Command`].

use crate::data_adoption::{AdoptionPlan, Consent};
use crate::handover::Wish;
use crate::host::Distribution;
use crate::status::{HandoverHistory, HandoverPlan, HandoverStatus, TreeStatus};
use actix::Message;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A request to the root supervisor. Commands that start or stop things are answered when the tree has arrived there,
/// or with a [`Refusal`]; the caller holds the deadline.
#[derive(Debug, Clone, PartialEq, Eq, Message)]
#[rtype(result = "Result<Reply, Refusal>")]
pub enum Command {
    Status,
    /// Starts what desired state names: store, slot, front, tenants.
    Up,
    /// Answered when the front serves and every cluster that should run is ready; refused when one gave up.
    AwaitReady,
    /// Stops everything in order: tenants, front parked, slots, store. Refused, with what is still alive, once the longest
    /// chains' stop deadlines have passed.
    Down,
    CreateTenant {
        name: String,
    },
    DeleteTenant {
        name: String,
    },
    StartTenant {
        name: String,
    },
    StopTenant {
        name: String,
    },
    RestartTenant {
        name: String,
    },
    /// Holds a tenant down that should run, until it is resumed. `at`: the wall clock, RFC 3339.
    PauseTenant {
        name: String,
        at: String,
    },
    ResumeTenant {
        name: String,
    },
    /// From here to [`Command::EndBackup`] nothing may stop the tenant or change its data's owner.
    BeginBackup {
        name: String,
    },
    EndBackup {
        name: String,
    },
    /// Makes unpacked data, of a cluster of that `distribution`, a new tenant and waits until it is ready.
    RestoreTenant {
        name: String,
        staging: PathBuf,
        distribution: Distribution,
    },
    /// Stops and starts one component of a ready tenant, and those that restart with it.
    RestartStep {
        name: String,
        component: String,
    },
    /// Clears a give-up (`Degraded`) or a repaired refusal and tries again. Takes the chains of kcp as well: `slot-a`.
    RetryTenant {
        name: String,
    },
    /// Moves kcp to the other slot.
    Handover {
        wish: Wish,
    },
    /// Says what that would do, and what would refuse it. Changes nothing.
    PlanHandover {
        wish: Wish,
    },
    /// The handovers that are over.
    HandoverHistory,
    /// What adopting the data of a refused tenant would change; changes nothing.
    PlanAdoption {
        name: String,
    },
    /// Overrides the identity guard's refusal as planned, and tries again.
    AdoptData {
        name: String,
        consent: Consent,
    },
    /// One plain service; a daemon of clusters has none.
    Service {
        name: String,
        order: ServiceOrder,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServiceOrder {
    Start,
    Stop,
    /// Clears a give-up and tries again.
    Retry,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Done,
    Status(Box<TreeStatus>),
    Handover(Box<HandoverStatus>),
    Plan(Box<HandoverPlan>),
    History(HandoverHistory),
    Adoption(Box<AdoptionPlan>),
}

/// Why a command was not carried out. One line, names the thing and the way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "kind", content = "message", rename_all = "snake_case")]
pub enum Refusal {
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    AlreadyExists(String),
    #[error("{0}")]
    BadRequest(String),
    /// Not now: something else is under way, or a precondition does not hold.
    #[error("{0}")]
    Conflict(String),
    /// It was tried and did not work.
    #[error("{0}")]
    Failed(String),
}

/// A line of the event stream: what happened where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Message)]
#[rtype(result = "()")]
pub struct TreeEvent {
    /// `demo/kine`, `slot-a`, `front`, `handover`.
    pub subject: String,
    pub what: String,
}
