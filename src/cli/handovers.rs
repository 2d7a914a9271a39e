//! Handovers in words: one that runs, one that is over, one that is only thought through. Pure; used by the tree and by
//! `berth kcp`.

use super::terminal::{Style, Tone, harmless};
use super::units::took;
use berth_actors::handover::{Side, Spent, Wish};
use berth_actors::host::DrainReport;
use berth_actors::status::{HandoverHistory, HandoverOutcome, HandoverPlan, HandoverStatus};

pub(super) fn outcome(handover: &HandoverStatus, style: Style) -> String {
    match &handover.outcome {
        HandoverOutcome::Running => style.paint(Tone::Busy, "running"),
        HandoverOutcome::Done => style.paint(Tone::Good, "done"),
        HandoverOutcome::RolledBack(reason) => {
            style.paint(Tone::Bad, &format!("rolled back: {}", harmless(reason)))
        }
    }
}

/// What there is to say below its line.
pub(super) fn details(handover: &HandoverStatus) -> Vec<String> {
    let mut lines = Vec::new();
    if handover.wish != Wish::Plain {
        lines.push(harmless(&handover.wish.to_string()));
    }
    lines.extend(change(&handover.old, &handover.new));
    if !handover.phases.is_empty() {
        let phases = handover.phases.iter();
        let phases: Vec<_> = phases.map(|p| format!("{} {}", p.phase, took(p.took_ms))).collect();
        lines.push(phases.join(", "));
    }
    lines
        .extend(handover.resumed.iter().map(|phase| format!("resumed: a daemon ended in the phase {phase}")));
    lines.extend(handover.drain.as_ref().map(|drain| format!("drain: {}", drained(drain))));
    lines.extend(handover.warnings.iter().map(|warning| format!("warning: {}", harmless(warning))));
    lines
}

/// From which kcp to which, where they differ.
fn change(old: &Side, new: &Side) -> Option<String> {
    let mut parts = Vec::new();
    if let (Some(old), Some(new)) = (&old.version, &new.version)
        && old != new
    {
        parts.push(format!("kcp {} to {}", harmless(old), harmless(new)));
    }
    if let (Some(old), Some(new)) = (&old.certificate, &new.certificate)
        && old != new
    {
        let short = |digest: &str| digest.get(..12).unwrap_or(digest).to_owned();
        parts.push(format!("certificate {} to {}", harmless(&short(old)), harmless(&short(new))));
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// What a drain did, in words.
pub(super) fn drained(drain: &DrainReport) -> String {
    let DrainReport { held, idle, self_closed, forced, raced, took_ms } = drain;
    let took = took(*took_ms);
    format!("{held} held, {idle} idle, {self_closed} self-closed, {forced} forced, {raced} raced in {took}")
}

/// Where the time went. What is not Berth's own stands first.
pub(super) fn spent(spent: &Spent) -> String {
    let ms = |micros: u64| took(micros / 1000);
    let own = spent.own();
    let named = [spent.stage_us, spent.canary_us, spent.retarget_us, spent.release_us, spent.journal_us];
    let own_us = u64::try_from(own.as_micros()).unwrap_or(u64::MAX);
    let rest = own_us.saturating_sub(named.iter().sum());
    format!(
        "time: new slot {}, drain {}, old slot {}, lease {}, settling {}; Berth's own {}: \
         staging {}, canary {}, retarget {}, lease's release {}, journal {}, rest {}",
        ms(spent.start_us),
        ms(spent.drain_us),
        ms(spent.stop_us),
        ms(spent.hold_us),
        ms(spent.settle_us),
        ms(own_us),
        ms(spent.stage_us),
        ms(spent.canary_us),
        ms(spent.retarget_us),
        ms(spent.release_us),
        ms(spent.journal_us),
        ms(rest)
    )
}

/// Every handover of the history, the latest last.
pub(super) fn history(history: &HandoverHistory, style: Style) -> String {
    let of_one = |handover: &HandoverStatus| {
        let when = second(handover.began.as_deref().unwrap_or("at an unknown time"));
        let (HandoverStatus { from, to, .. }, whole) = (handover, took(handover.spent.whole_us / 1000));
        let head = format!("{when}  slot {from} to {to}, {} after {whole}\n", outcome(handover, style));
        let lines = details(handover).into_iter().chain([spent(&handover.spent)]);
        [head].into_iter().chain(lines.map(|line| format!("    {line}\n"))).collect::<Vec<_>>()
    };
    history.handovers.iter().flat_map(of_one).collect()
}

/// `2026-12-01T05:10:03.123456789Z` without what is smaller than a second.
fn second(rfc3339: &str) -> String {
    let (moment, _) = rfc3339.split_once('.').unwrap_or((rfc3339, ""));
    harmless(moment.trim_end_matches('Z')).replacen('T', " ", 1)
}

pub(super) fn plan(plan: &HandoverPlan) -> String {
    let side = |side: &Side| side.version.as_deref().map_or_else(|| "unknown version".to_owned(), harmless);
    let address = plan.address.map_or_else(|| "not serving".to_owned(), |address| address.to_string());
    let head = format!(
        "{}: from slot {} (kcp {}, {address}) to slot {} (kcp {}, any free port)\n",
        harmless(&plan.wish.to_string()),
        plan.from,
        side(&plan.old),
        plan.to,
        side(&plan.new)
    );
    let expected = match &plan.expected {
        Some(expected) => {
            let whole = took(expected.whole_us / 1000);
            format!("the last one that was done took {whole}\n    {}\n", spent(expected))
        }
        None => "how long it will take is not known: none was done yet\n".to_owned(),
    };
    let warnings = plan.warnings.iter().map(|warning| format!("warning: {}\n", harmless(warning)));
    let refusals = plan.refusals.iter().map(|refusal| format!("refused: {}\n", harmless(refusal)));
    [head, expected].into_iter().chain(warnings).chain(refusals).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture;
    use berth_actors::handover::Phase;
    use berth_actors::identity::SlotName;

    fn version(version: &str) -> Side {
        Side { version: Some(version.to_owned()), ..Side::default() }
    }

    fn upgraded() -> HandoverStatus {
        HandoverStatus {
            wish: Wish::Upgrade {
                version: Some("v0.34.0".into()),
                program: "/opt/kcp".into(),
                allow_downgrade: false,
            },
            old: version("v0.33.0"),
            new: version("v0.34.0"),
            began: Some("2026-12-01T05:10:03.123456789Z".into()),
            resumed: vec![Phase::Drained],
            drain: Some(DrainReport { held: 2, took_ms: 40, ..DrainReport::default() }),
            warnings: vec!["the lease was not deleted".into()],
            spent: Spent {
                whole_us: 9_300_000,
                start_us: 7_100_000,
                drain_us: 40_000,
                stop_us: 1_200_000,
                hold_us: 800_000,
                canary_us: 60_000,
                journal_us: 50_000,
                ..Spent::default()
            },
            ..fixture::handover(HandoverOutcome::Done, &[("staged", 12)])
        }
    }

    #[test]
    fn a_past_handover_is_told_with_its_reason_its_phases_and_where_its_time_went() {
        let told =
            history(&HandoverHistory { handovers: vec![upgraded()], unreadable: Vec::new() }, Style::PLAIN);
        assert_eq!(
            told,
            "2026-12-01 05:10:03  slot b to a, done after 9.3s\n    \
             upgrade to v0.34.0\n    \
             kcp v0.33.0 to v0.34.0\n    \
             staged 12ms\n    \
             resumed: a daemon ended in the phase drained\n    \
             drain: 2 held, 0 idle, 0 self-closed, 0 forced, 0 raced in 40ms\n    \
             warning: the lease was not deleted\n    \
             time: new slot 7.1s, drain 40ms, old slot 1.2s, lease 800ms, settling 0ms; Berth's own 160ms: \
             staging 0ms, canary 60ms, retarget 0ms, lease's release 0ms, journal 50ms, rest 50ms\n"
        );
    }

    #[test]
    fn a_plan_names_everything_that_speaks_against_it() {
        let told = plan(&HandoverPlan {
            from: SlotName::A,
            to: SlotName::B,
            wish: Wish::Plain,
            old: version("v0.33.0"),
            new: Side::default(),
            address: None,
            refusals: vec!["slot a is not ready".into(), "sa.key is missing".into()],
            warnings: vec!["the certificate expires".into()],
            expected: None,
        });
        assert_eq!(
            told,
            "handover: from slot a (kcp v0.33.0, not serving) to slot b (kcp unknown version, any free port)\n\
             how long it will take is not known: none was done yet\n\
             warning: the certificate expires\n\
             refused: slot a is not ready\n\
             refused: sa.key is missing\n"
        );
    }
}
