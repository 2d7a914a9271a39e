//! The terms of one component, as the tree takes them.

use super::defaults::Terms;
use berth_actors::policy::{Restart, RestartPolicy};
use berth_actors::spec::{Reaction, StopPlan};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Which unasked ends are followed by a restart, in OTP's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RestartKind {
    /// All of them.
    Permanent,
    /// All but exits with a clean code.
    Transient,
    /// None.
    Temporary,
}

impl fmt::Display for RestartKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Permanent => "permanent",
            Self::Transient => "transient",
            Self::Temporary => "temporary",
        })
    }
}

impl RestartKind {
    /// `clean`: the exit codes that count as clean to a transient component.
    pub fn with_clean_exits(self, clean: Vec<i32>) -> Restart {
        match self {
            Self::Permanent => Restart::Permanent,
            Self::Transient => Restart::Transient(clean),
            Self::Temporary => Restart::Temporary,
        }
    }
}

/// How one component starts, stops and comes back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Life {
    pub restart: RestartPolicy,
    pub stop: StopPlan,
    pub start_deadline: Duration,
    /// To the death of each earlier step.
    pub reactions: BTreeMap<String, Reaction>,
}

impl Life {
    /// A window must be longer than this, or a component that only ever times out is tried for ever: so many lives, each
    /// with its delay (which chance makes a fifth longer), a start and a stop that run into their deadlines.
    pub fn shortest_window(&self) -> Duration {
        let delay = self.restart.max_delay.saturating_add(self.restart.max_delay / 5);
        let one = delay.saturating_add(self.start_deadline).saturating_add(self.stop.deadline);
        one.saturating_mul(self.restart.intensity)
    }
}

impl From<&Terms> for Life {
    fn from(terms: &Terms) -> Self {
        Self {
            restart: RestartPolicy {
                restart: terms.restart.0.with_clean_exits(Vec::new()),
                base_delay: terms.base_delay.0,
                max_delay: terms.max_delay.0,
                healthy_after: terms.healthy_after.0,
                intensity: terms.intensity.0,
                window: terms.window.0,
            },
            stop: terms.stop,
            start_deadline: terms.start_deadline.0,
            reactions: terms
                .reactions
                .iter()
                .map(|(earlier, (reaction, _))| ((*earlier).to_owned(), *reaction))
                .collect(),
        }
    }
}
