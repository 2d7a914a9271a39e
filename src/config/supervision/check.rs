//! What the terms of one component may say, alone and beside each other.

use super::TermsConfig;
use crate::config::setting::{Setting, Source};
use crate::config::values::Span;
use crate::policy::RestartKind;

/// Terms that mean nothing, or never end; with the way out.
pub(super) struct Nonsense {
    pub(super) line: usize,
    pub(super) reason: String,
}

/// Defaults are sound by themselves (`policy::defaults` tests it), so some key of the file is always to blame.
pub(super) fn terms(terms: &TermsConfig) -> Result<(), Nonsense> {
    let TermsConfig { restart, clean_exits, intensity, start_deadline, stop_deadline, .. } = terms;
    if **intensity == 0 {
        let reason =
            "intensity = 0 gives up before the first restart: write restart = \"temporary\" for that";
        return refuse([line(intensity)], reason);
    }
    if start_deadline.0.is_zero() {
        return refuse(
            [line(start_deadline)],
            "start_deadline = \"0s\" is met by no start: give it some time",
        );
    }
    if stop_deadline.0.is_zero() {
        return refuse(
            [line(stop_deadline)],
            "stop_deadline = \"0s\" is SIGKILL without asking: give it some time",
        );
    }
    if clean_exits.is_some() && **restart != RestartKind::Transient {
        let reason = format!(
            "clean_exits means nothing with restart = \"{}\": write restart = \"transient\", or remove it",
            restart.value
        );
        return refuse([line(clean_exits)], reason);
    }
    delays(terms)?;
    window(terms)
}

fn delays(terms: &TermsConfig) -> Result<(), Nonsense> {
    let (base, max) = (&terms.base_delay, &terms.max_delay);
    if base.value <= max.value {
        return Ok(());
    }
    let (shorter, longer) = (max.value, base.value);
    refuse(
        [line(base), line(max)],
        format!("base_delay {longer} is longer than max_delay {shorter}: give max_delay at least as much"),
    )
}

/// A window too short for its intensity would never see a give-up: what only times out would be tried for ever.
fn window(terms: &TermsConfig) -> Result<(), Nonsense> {
    let shortest = terms.life().shortest_window();
    if terms.window.0 > shortest {
        return Ok(());
    }
    let reason = format!(
        "window {} is too short for intensity {}: so many starts and stops that only time out, with their delays, \
         take {}, and it would never give up; give window more, or lower intensity",
        terms.window.value,
        terms.intensity.value,
        Span(shortest)
    );
    let lines = [
        line(&terms.window),
        line(&terms.intensity),
        line(&terms.start_deadline),
        line(&terms.stop_deadline),
        line(&terms.max_delay),
    ];
    refuse(lines, reason)
}

/// Blames the first of the keys that the file has.
fn refuse<const N: usize>(lines: [Option<usize>; N], reason: impl Into<String>) -> Result<(), Nonsense> {
    Err(Nonsense { line: lines.into_iter().flatten().next().unwrap_or(1), reason: reason.into() })
}

fn line<T>(setting: &Setting<T>) -> Option<usize> {
    match &setting.source {
        Source::File { line, .. } => Some(*line),
        Source::Default(_) | Source::CommandLine(_) => None,
    }
}
