//! How the tree stands, in the one line of `systemctl status` (A3): what kcp is served from, and which clusters are not well.
//!
//! `Daemon::start` runs it beside the tree. It asks after events, once a second at most, and only where systemd listens.

use super::systemd;
use crate::off_thread::off_thread;
use actix::prelude::*;
use berth_actors::message::{Command, Reply, TreeEvent};
use berth_actors::root::Root;
use berth_actors::status::{ChainState, ChainStatus, HandoverOutcome, TreeStatus};
use std::time::Duration;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

/// A start tells a hundred events, and its end is what counts.
const PACE: Duration = Duration::from_secs(1);
/// Names in the line; the rest is counted.
const NAMED: usize = 3;

/// Ends with the tree.
pub(super) async fn tell(root: Addr<Root>, mut events: Receiver<TreeEvent>) {
    if !systemd::listens() {
        return;
    }
    let mut told = String::new();
    while !matches!(events.recv().await, Err(RecvError::Closed)) {
        tokio::time::sleep(PACE).await;
        while events.try_recv().is_ok() {}
        let Ok(Ok(Reply::Status(status))) = root.send(Command::Status).await else { continue };
        let line = line(&status);
        if line != told {
            told.clone_from(&line);
            // A systemd that does not read lets its writers wait.
            off_thread(move || systemd::status(&line)).await;
        }
    }
}

fn line(status: &TreeStatus) -> String {
    let mut parts = Vec::new();
    if status.store.is_some() {
        parts.push(match &status.front.target {
            Some(target) => format!("kcp on slot {}", target.slot),
            None => "kcp not served".to_owned(),
        });
    }
    if status.handover.as_ref().is_some_and(|handover| handover.outcome == HandoverOutcome::Running) {
        parts.push("handover under way".to_owned());
    }
    let wanted: Vec<&ChainStatus> =
        status.tenants.iter().filter(|tenant| tenant.state != ChainState::Down).collect();
    let ready = wanted.iter().filter(|tenant| tenant.state == ChainState::Ready).count();
    parts.push(format!("{ready} of {} clusters ready", wanted.len()));
    let unwell: Vec<&str> = wanted
        .iter()
        .filter(|tenant| tenant.state.needs_an_operator())
        .map(|tenant| tenant.name.as_str())
        .collect();
    if !unwell.is_empty() {
        let named = unwell[..unwell.len().min(NAMED)].join(", ");
        let more = unwell.len().saturating_sub(NAMED);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        parts.push(format!("{named}{more} waiting for an operator"));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_actors::identity::SlotName;
    use berth_actors::status::FrontTarget;

    fn chain(name: &str, state: ChainState) -> ChainStatus {
        ChainStatus { name: name.to_owned(), state, reason: None, paused: None, children: Vec::new() }
    }

    #[test]
    fn it_says_where_kcp_is_how_many_clusters_are_ready_and_who_needs_a_hand() {
        use ChainState::{Degraded, Down, Ready, Refused, Starting};
        let mut status = TreeStatus { store: Some(chain("kcp-store", Ready)), ..TreeStatus::default() };
        assert_eq!(line(&status), "kcp not served; 0 of 0 clusters ready");
        let address = ([127, 0, 0, 1], 6443).into();
        status.front.target = Some(FrontTarget { slot: SlotName::B, address });
        status.tenants =
            vec![chain("a", Ready), chain("b", Down), chain("c", Starting), chain("d", Degraded)];
        assert_eq!(line(&status), "kcp on slot b; 1 of 3 clusters ready; d waiting for an operator");
        status.tenants.extend(["e", "f", "g"].map(|name| chain(name, Refused)));
        assert_eq!(
            line(&status),
            "kcp on slot b; 1 of 6 clusters ready; d, e, f and 1 more waiting for an operator"
        );
        let without_kcp = TreeStatus { tenants: vec![chain("a", Ready)], ..TreeStatus::default() };
        assert_eq!(line(&without_kcp), "1 of 1 clusters ready");
    }
}
