//! `[supervision.CHAIN.COMPONENT]`: the terms each component is kept on, read over their defaults.
//!
//! Every component has every key. A combination that would mean nothing, or never end, is refused with the way out
//! ([`check`]).

mod check;

use super::ConfigError;
use super::setting::{Origin, Setting, line_of};
use super::values::Span;
use crate::policy::{Life, Policies, RestartKind, Supervised, defaults};
use berth_actors::policy::RestartPolicy;
use berth_actors::spec::{Reaction, StopPlan};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use toml::Spanned;

/// The section as it is written: chains, in them components.
pub(super) type Given = BTreeMap<Spanned<String>, BTreeMap<Spanned<String>, GivenTerms>>;

type Key<T> = Option<Spanned<T>>;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct GivenTerms {
    restart: Key<RestartKind>,
    clean_exits: Key<Vec<i32>>,
    intensity: Key<u32>,
    window: Key<Span>,
    base_delay: Key<Span>,
    max_delay: Key<Span>,
    healthy_after: Key<Span>,
    start_deadline: Key<Span>,
    stop_deadline: Key<Span>,
    ride_through: BTreeMap<Spanned<String>, Spanned<Ride>>,
}

/// A reaction as it is written: how long its gate may stay shut, or `restart`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Ride(pub Reaction);

impl FromStr for Ride {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "restart" {
            return Ok(Self(Reaction::Restart));
        }
        let within = text.parse::<Span>().map_err(|_| {
            format!("{text:?} is no reaction: write a length of time like \"15s\", or \"restart\"")
        })?;
        if within.0.is_zero() {
            return Err(format!("{text:?} leaves no time to ride through: write \"restart\""));
        }
        Ok(Self(Reaction::RideThrough(within.0)))
    }
}

impl TryFrom<String> for Ride {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl fmt::Display for Ride {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Reaction::Restart => f.write_str("restart"),
            Reaction::RideThrough(within) => Span(within).fmt(f),
        }
    }
}

/// The terms of one component, each with its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TermsConfig {
    pub of: Supervised,
    pub restart: Setting<RestartKind>,
    /// `None` unless it is transient.
    pub clean_exits: Setting<Option<Vec<i32>>>,
    pub intensity: Setting<u32>,
    pub window: Setting<Span>,
    pub base_delay: Setting<Span>,
    pub max_delay: Setting<Span>,
    pub healthy_after: Setting<Span>,
    pub start_deadline: Setting<Span>,
    pub stop_deadline: Setting<Span>,
    /// By earlier step.
    pub ride_through: Vec<(&'static str, Setting<Ride>)>,
    stop: StopPlan,
}

/// The terms of everything that is supervised, in the order of [`Supervised::ALL`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupervisionConfig(pub Vec<TermsConfig>);

impl SupervisionConfig {
    pub fn policies(&self) -> Policies {
        Policies::of(|of| self.0[of as usize].life())
    }
}

impl TermsConfig {
    /// As the tree takes them.
    pub fn life(&self) -> Life {
        let clean = self.clean_exits.value.clone().unwrap_or_else(|| vec![0]);
        Life {
            restart: RestartPolicy {
                restart: self.restart.with_clean_exits(clean),
                base_delay: self.base_delay.0,
                max_delay: self.max_delay.0,
                healthy_after: self.healthy_after.0,
                intensity: *self.intensity,
                window: self.window.0,
            },
            stop: StopPlan { deadline: self.stop_deadline.0, ..self.stop },
            start_deadline: self.start_deadline.0,
            reactions: self.ride_through.iter().map(|(of, ride)| ((*of).to_owned(), ride.0)).collect(),
        }
    }
}

pub(super) fn read(given: Given, origin: Origin<'_>) -> Result<SupervisionConfig, ConfigError> {
    let mut sections = BTreeMap::new();
    for (chain, components) in given {
        if !Supervised::ALL.iter().any(|of| of.chain() == chain.get_ref()) {
            let known = list(Supervised::ALL.iter().map(|of| of.chain()));
            let reason = format!("unknown chain `{}`, expected one of {known}", chain.get_ref());
            return Err(refused(origin, &chain, reason));
        }
        for (component, terms) in components {
            let of = Supervised::ALL
                .into_iter()
                .find(|of| of.chain() == chain.get_ref() && of.component() == component.get_ref());
            let Some(of) = of else {
                let known = Supervised::ALL.iter().filter(|of| of.chain() == chain.get_ref());
                let known = list(known.map(|of| of.component()));
                let reason = format!("unknown component `{}`, expected one of {known}", component.get_ref());
                return Err(refused(origin, &component, reason));
            };
            sections.insert(of as usize, terms);
        }
    }
    let terms = Supervised::ALL
        .into_iter()
        .map(|of| one(of, sections.remove(&(of as usize)).unwrap_or_default(), origin));
    terms.collect::<Result<_, _>>().map(SupervisionConfig)
}

fn one(of: Supervised, given: GivenTerms, origin: Origin<'_>) -> Result<TermsConfig, ConfigError> {
    let default = defaults::terms(of);
    let mut reactions = given.ride_through;
    let mut ride_through = Vec::new();
    for (earlier, (reaction, reason)) in default.reactions {
        let given = reactions.remove(earlier);
        ride_through.push((earlier, origin.setting(given, (Ride(reaction), reason))));
    }
    if let Some(stranger) = reactions.keys().next() {
        let known = list(ride_through.iter().map(|(known, _)| *known));
        let reason = if known.is_empty() {
            format!("nothing comes before {of}: remove `{}`", stranger.get_ref())
        } else {
            format!("`{}` does not come before {of}, which reacts to {known} only", stranger.get_ref())
        };
        return Err(refused(origin, stranger, reason));
    }
    let span = |(value, reason): defaults::Reasoned<Duration>| (Span(value), reason);
    let terms = TermsConfig {
        of,
        restart: origin.setting(given.restart, default.restart),
        clean_exits: origin.optional(given.clean_exits, defaults::CLEAN_EXITS),
        intensity: origin.setting(given.intensity, default.intensity),
        window: origin.setting(given.window, span(default.window)),
        base_delay: origin.setting(given.base_delay, span(default.base_delay)),
        max_delay: origin.setting(given.max_delay, span(default.max_delay)),
        healthy_after: origin.setting(given.healthy_after, span(default.healthy_after)),
        start_deadline: origin.setting(given.start_deadline, span(default.start_deadline)),
        stop_deadline: origin
            .setting(given.stop_deadline, (Span(default.stop.deadline), default.stop_reason)),
        ride_through,
        stop: default.stop,
    };
    check::terms(&terms).map_err(|check::Nonsense { line, reason }| ConfigError::Invalid {
        path: origin.path.to_owned(),
        line,
        reason,
    })?;
    Ok(terms)
}

fn refused<T>(origin: Origin<'_>, at: &Spanned<T>, reason: impl Into<String>) -> ConfigError {
    ConfigError::Invalid {
        path: origin.path.to_owned(),
        line: line_of(origin.text, at.span().start),
        reason: reason.into(),
    }
}

/// Each name once, as serde lists fields.
fn list(names: impl Iterator<Item = &'static str>) -> String {
    let mut listed: Vec<String> = Vec::new();
    for name in names.map(|name| format!("`{name}`")) {
        if !listed.contains(&name) {
            listed.push(name);
        }
    }
    listed.join(", ")
}
