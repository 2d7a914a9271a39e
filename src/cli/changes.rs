//! What changed between two statuses, one line per change: how a tree comes up where nothing can be redrawn (a pipe, a CI
//! log). Pure.

use super::{units, words};
use berth_actors::status::{
    ChainStatus, ChildState, ChildStatus, FrontStatus, HandoverOutcome, HandoverStatus, TreeStatus,
};

/// Lines for everything that differs; from `TreeStatus::default()` the first status is told in full.
pub fn changes(before: &TreeStatus, after: &TreeStatus) -> Vec<String> {
    let mut lines = Vec::new();
    for chain in chains(after) {
        chain_changes(chains(before).find(|earlier| earlier.name == chain.name), chain, &mut lines);
    }
    for gone in chains(before).filter(|gone| !chains(after).any(|chain| chain.name == gone.name)) {
        lines.push(format!("{}: deleted", gone.name));
    }
    lines.extend(front_change(&before.front, &after.front));
    if let Some(handover) = &after.handover {
        handover_changes(before.handover.as_ref(), handover, &mut lines);
    }
    lines
}

fn chains(status: &TreeStatus) -> impl Iterator<Item = &ChainStatus> {
    status.store.iter().chain(&status.slots).chain(&status.tenants).chain(&status.services)
}

/// Components first: a chain is ready because its last one is.
pub(super) fn chain_changes(before: Option<&ChainStatus>, after: &ChainStatus, lines: &mut Vec<String>) {
    for child in &after.children {
        let earlier =
            before.and_then(|chain| chain.children.iter().find(|earlier| earlier.name == child.name));
        let what = child_change(earlier, child);
        lines.extend(what.map(|what| format!("{}/{}: {what}", after.name, child.name)));
    }
    let (state, reason) = before.map_or(("down", &None), |chain| (words::of(chain).1, &chain.reason));
    let word = words::of(after).1;
    if (state, reason) == (word, &after.reason) {
        return;
    }
    let reason = after.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
    lines.push(format!("{}: {word}{reason}", after.name));
}

fn child_change(before: Option<&ChildStatus>, after: &ChildStatus) -> Option<String> {
    let state = before.map_or(ChildState::Down, |child| child.state);
    let restarted = before.is_some_and(|child| child.restarts != after.restarts);
    let waits = before.and_then(|child| child.waits_for.as_ref()) != after.waits_for.as_ref();
    if state == after.state && !restarted {
        let waiting = !matches!(after.state, ChildState::Ready | ChildState::Down | ChildState::Done);
        return after.waits_for.as_ref().filter(|_| waits && waiting).map(|what| format!("waits for {what}"));
    }
    Some(match after.state {
        ChildState::Down => "down".to_owned(),
        ChildState::Starting => {
            let what =
                after.waits_for.as_ref().map_or_else(String::new, |what| format!(", waits for {what}"));
            let again = if restarted { " again" } else { "" };
            format!("starting{again}{what}")
        }
        ChildState::Ready => ready(after),
        ChildState::Stopping => "stopping".to_owned(),
        ChildState::Backoff => format!("will be restarted{}", failure(after)),
        ChildState::Done => "done".to_owned(),
        ChildState::Failed => format!("failed{}", failure(after)),
    })
}

fn ready(child: &ChildStatus) -> String {
    let mut words = vec!["ready".to_owned()];
    words.extend(child.ready_took_ms.map(|took| format!("after {}", units::took(took))));
    let mut line = words.join(" ");
    let details =
        [child.pid.map(|pid| format!("pid {pid}")), child.address.map(|address| address.to_string())];
    for detail in details.into_iter().flatten() {
        line.push_str(", ");
        line.push_str(&detail);
    }
    if let Some(reason) = &child.stand_in {
        line.push_str(" [stand-in: ");
        line.push_str(reason);
        line.push(']');
    }
    line
}

fn failure(child: &ChildStatus) -> String {
    child.last_failure.as_ref().map_or_else(String::new, |failure| format!(": {failure}"))
}

fn front_change(before: &FrontStatus, after: &FrontStatus) -> Option<String> {
    if (before.listen, &before.target) == (after.listen, &after.target) {
        return None;
    }
    let listen = after.listen.map_or_else(|| "not listening".to_owned(), |listen| listen.to_string());
    Some(match &after.target {
        Some(target) => format!("front: {listen} to slot {} at {}", target.slot, target.address),
        None => format!("front: {listen}, connections wait for a slot"),
    })
}

fn handover_changes(before: Option<&HandoverStatus>, after: &HandoverStatus, lines: &mut Vec<String>) {
    // Phases only grow within one handover; anything else is the next one.
    let same = before.filter(|earlier| {
        (earlier.from, earlier.to) == (after.from, after.to) && after.phases.starts_with(&earlier.phases)
    });
    let known = same.map_or(0, |earlier| earlier.phases.len());
    let subject = format!("handover {} to {}", after.from, after.to);
    if same.is_none() && after.outcome == HandoverOutcome::Running {
        lines.push(format!("{subject}: begun"));
    }
    for phase in &after.phases[known..] {
        lines.push(format!("{subject}: {} ({})", phase.phase, units::took(phase.took_ms)));
    }
    if same.map(|earlier| &earlier.outcome) != Some(&after.outcome) {
        match &after.outcome {
            HandoverOutcome::Running => {}
            HandoverOutcome::Done => lines.push(format!("{subject}: done")),
            HandoverOutcome::RolledBack(reason) => lines.push(format!("{subject}: rolled back: {reason}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture::{chain, child, front, handover, healthy, ready};
    use berth_actors::identity::SlotName;
    use berth_actors::status::ChainState;

    fn demo(state: ChainState, children: Vec<ChildStatus>) -> TreeStatus {
        TreeStatus { tenants: vec![chain("demo", state, children)], ..TreeStatus::default() }
    }

    #[test]
    fn nothing_changed_is_no_line_and_time_alone_is_no_change() {
        let mut later = healthy();
        later.tenants[0].children[0].since_ms += 1000;
        later.front.per_slot[0].open += 1;
        assert!(changes(&healthy(), &later).is_empty());
    }

    #[test]
    fn a_tree_that_comes_up_tells_each_step_once() {
        let waiting =
            ChildStatus { waits_for: Some("a login".to_owned()), ..child("postgres", ChildState::Starting) };
        let other = ChildStatus { waits_for: Some("crash recovery".to_owned()), ..waiting.clone() };
        let stand_in =
            ChildStatus { stand_in: Some("no k3s here".to_owned()), ..ready("postgres", 7, Some(5432), 0) };
        let steps = [
            demo(ChainState::Down, vec![child("postgres", ChildState::Down)]),
            demo(ChainState::Starting, vec![waiting]),
            demo(ChainState::Starting, vec![other]),
            demo(ChainState::Ready, vec![stand_in]),
            TreeStatus::default(),
        ];
        let mut before = TreeStatus::default();
        let mut told = Vec::new();
        for after in steps {
            told.extend(changes(&before, &after));
            before = after;
        }
        assert_eq!(
            told,
            [
                "demo/postgres: starting, waits for a login",
                "demo: starting",
                "demo/postgres: waits for crash recovery",
                "demo/postgres: ready after 1.2s, pid 7, 127.0.0.1:5432 [stand-in: no k3s here]",
                "demo: ready",
                "demo: deleted",
            ]
        );
    }

    #[test]
    fn a_restart_between_two_looks_is_not_missed() {
        let before = demo(ChainState::Ready, vec![ready("kine", 7, None, 9000)]);
        let again = ChildStatus { restarts: 1, ..ready("kine", 8, None, 10) };
        let after = demo(ChainState::Ready, vec![again]);
        assert_eq!(changes(&before, &after), ["demo/kine: ready after 1.2s, pid 8"]);
    }

    #[test]
    fn failures_and_give_ups_are_told_with_their_reason() {
        let failing =
            |state| ChildStatus { last_failure: Some("exit code 1".to_owned()), ..child("kine", state) };
        let before = demo(ChainState::Starting, vec![child("kine", ChildState::Starting)]);
        let backoff = demo(ChainState::Starting, vec![failing(ChildState::Backoff)]);
        let mut given_up = demo(ChainState::Degraded, vec![failing(ChildState::Failed)]);
        given_up.tenants[0].reason = Some("kine gave up".to_owned());
        assert_eq!(changes(&before, &backoff), ["demo/kine: will be restarted: exit code 1"]);
        assert_eq!(
            changes(&backoff, &given_up),
            ["demo/kine: failed: exit code 1", "demo: degraded: kine gave up"]
        );
    }

    #[test]
    fn the_front_tells_which_slot_it_serves() {
        let mut parked = front(SlotName::A, 1);
        parked.target = None;
        let status = |front| TreeStatus { front, ..TreeStatus::default() };
        assert_eq!(
            changes(&TreeStatus::default(), &status(parked.clone())),
            ["front: 127.0.0.1:6443, connections wait for a slot"]
        );
        assert_eq!(
            changes(&status(parked), &status(front(SlotName::B, 2))),
            ["front: 127.0.0.1:6443 to slot b at 127.0.0.1:2"]
        );
    }

    #[test]
    fn a_handover_is_told_phase_by_phase_and_the_next_one_from_its_beginning() {
        let status = |outcome, reached: &[(&str, u64)]| TreeStatus {
            handover: Some(handover(outcome, reached)),
            ..TreeStatus::default()
        };
        let begun = status(HandoverOutcome::Running, &[]);
        let staged = status(HandoverOutcome::Running, &[("staged", 12)]);
        let done = status(HandoverOutcome::Done, &[("staged", 12), ("started", 6100)]);
        assert_eq!(changes(&TreeStatus::default(), &begun), ["handover b to a: begun"]);
        assert_eq!(changes(&begun, &staged), ["handover b to a: staged (12ms)"]);
        assert_eq!(changes(&staged, &done), ["handover b to a: started (6.1s)", "handover b to a: done"]);
        assert_eq!(changes(&done, &begun), ["handover b to a: begun"]);
    }
}
