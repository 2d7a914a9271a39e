//! `[supervision.CHAIN.COMPONENT]`: the terms each component is kept on, read over their defaults.
//!
//! Every component has every key. A combination that would mean nothing, or never end, is refused with the way out.

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
            sections.insert(of as usize, (component, terms));
        }
    }
    let terms = Supervised::ALL.into_iter().map(|of| match sections.remove(&(of as usize)) {
        Some((section, terms)) => one(of, &section, terms, origin),
        None => one(of, &Spanned::new(0..0, String::new()), GivenTerms::default(), origin),
    });
    terms.collect::<Result<_, _>>().map(SupervisionConfig)
}

/// `section` is named where no key of it is to blame.
fn one(
    of: Supervised,
    section: &Spanned<String>,
    given: GivenTerms,
    origin: Origin<'_>,
) -> Result<TermsConfig, ConfigError> {
    check(of, section, &given, origin)?;
    let default = defaults::terms(of);
    let span = |(value, reason): defaults::Reasoned<Duration>| (Span(value), reason);
    let mut ride_through = Vec::new();
    let mut reactions = given.ride_through;
    for (earlier, (reaction, reason)) in default.reactions {
        let given = reactions.remove(earlier);
        ride_through.push((earlier, origin.setting(given, (Ride(reaction), reason))));
    }
    Ok(TermsConfig {
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
    })
}

/// What each key may say, alone and beside the others.
fn check(
    of: Supervised,
    section: &Spanned<String>,
    given: &GivenTerms,
    origin: Origin<'_>,
) -> Result<(), ConfigError> {
    let default = defaults::terms(of);
    let or = |key: &Key<Span>, default: Duration| key.as_ref().map_or(default, |key| key.get_ref().0);
    if let Some(intensity) = given.intensity.as_ref().filter(|intensity| *intensity.get_ref() == 0) {
        let reason =
            "intensity = 0 gives up before the first restart: write restart = \"temporary\" for that";
        return Err(refused(origin, intensity, reason));
    }
    for (key, way_out) in [
        (&given.start_deadline, "start_deadline = \"0s\" is met by no start: give it some time"),
        (&given.stop_deadline, "stop_deadline = \"0s\" is SIGKILL without asking: give it some time"),
    ] {
        if let Some(key) = key.as_ref().filter(|key| key.get_ref().0.is_zero()) {
            return Err(refused(origin, key, way_out));
        }
    }
    let restart = given.restart.as_ref().map_or(default.restart.0, |key| *key.get_ref());
    if let Some(clean) = &given.clean_exits
        && restart != RestartKind::Transient
    {
        let reason = format!(
            "clean_exits means nothing with restart = \"{restart}\": write restart = \"transient\", or remove it"
        );
        return Err(refused(origin, clean, reason));
    }
    let (base, max) =
        (or(&given.base_delay, default.base_delay.0), or(&given.max_delay, default.max_delay.0));
    if base > max {
        let reason = format!(
            "base_delay {} is longer than max_delay {}: give max_delay at least as much",
            Span(base),
            Span(max)
        );
        return Err(blamed(origin, section, [&given.base_delay, &given.max_delay], reason));
    }
    reactions(of, given, origin)?;
    window(of, section, given, origin)
}

/// A step reacts to what comes before it, and to nothing else.
fn reactions(of: Supervised, given: &GivenTerms, origin: Origin<'_>) -> Result<(), ConfigError> {
    let default = defaults::terms(of);
    for earlier in given.ride_through.keys() {
        if default.reactions.iter().any(|(known, _)| known == earlier.get_ref()) {
            continue;
        }
        let known = list(default.reactions.iter().map(|(known, _)| *known));
        let reason = if known.is_empty() {
            format!("nothing comes before {of}: remove `{}`", earlier.get_ref())
        } else {
            format!("`{}` does not come before {of}, which reacts to {known} only", earlier.get_ref())
        };
        return Err(refused(origin, earlier, reason));
    }
    Ok(())
}

/// A window too short for its intensity would never see a give-up: what only times out would be tried for ever.
fn window(
    of: Supervised,
    section: &Spanned<String>,
    given: &GivenTerms,
    origin: Origin<'_>,
) -> Result<(), ConfigError> {
    let mut life = Life::from(&defaults::terms(of));
    let or = |key: &Key<Span>, default: Duration| key.as_ref().map_or(default, |key| key.get_ref().0);
    life.restart.intensity = given.intensity.as_ref().map_or(life.restart.intensity, |key| *key.get_ref());
    life.restart.window = or(&given.window, life.restart.window);
    life.restart.max_delay = or(&given.max_delay, life.restart.max_delay);
    life.start_deadline = or(&given.start_deadline, life.start_deadline);
    life.stop.deadline = or(&given.stop_deadline, life.stop.deadline);
    let shortest = life.shortest_window();
    if life.restart.window > shortest {
        return Ok(());
    }
    let reason = format!(
        "window {} is too short for intensity {}: so many starts and stops that only time out, with their delays, take {}, \
         and it would never give up; give window more, or lower intensity",
        Span(life.restart.window),
        life.restart.intensity,
        Span(shortest)
    );
    let blamed_first = [&given.window, &given.start_deadline, &given.stop_deadline, &given.max_delay];
    match (&given.window, &given.intensity) {
        (None, Some(intensity)) => Err(refused(origin, intensity, reason)),
        _ => Err(blamed(origin, section, blamed_first, reason)),
    }
}

/// Refuses the first of `keys` that was given.
fn blamed<const N: usize>(
    origin: Origin<'_>,
    section: &Spanned<String>,
    keys: [&Key<Span>; N],
    reason: String,
) -> ConfigError {
    match keys.into_iter().flatten().next() {
        Some(key) => refused(origin, key, reason),
        None => refused(origin, section, reason),
    }
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
