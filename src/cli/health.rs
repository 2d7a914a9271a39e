//! The one judgement of a whole tree, for `status --check` and the first line of `status`.

use berth_actors::status::{ChainState, ChainStatus, HandoverOutcome, TreeStatus};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    /// Everything that should serve does. A chain that is down was stopped by someone, except kcp's own.
    Ready,
    /// Something starts, stops or recovers; it may end well without anyone's help.
    Changing,
    /// Something gave up, was refused or is done: it will not serve again without an operator.
    Broken,
}

pub fn health(status: &TreeStatus) -> Health {
    let chains = status.store.iter().chain(&status.slots).chain(&status.tenants).chain(&status.services);
    let states: Vec<_> = chains.map(|chain| chain.state).collect();
    let kcp_serves = status.slots.is_empty() || active_slot(status).is_some_and(is_ready);
    if states.iter().any(|state| state.needs_an_operator()) {
        Health::Broken
    } else if !kcp_serves || handing_over(status) || states.iter().any(|state| is_changing(*state)) {
        Health::Changing
    } else {
        Health::Ready
    }
}

pub(super) fn active_slot(status: &TreeStatus) -> Option<&ChainStatus> {
    let active = status.active_slot?;
    status.slots.iter().find(|slot| slot.name == active.chain())
}

pub(super) fn is_ready(chain: &ChainStatus) -> bool {
    chain.state == ChainState::Ready
}

fn handing_over(status: &TreeStatus) -> bool {
    status.handover.as_ref().is_some_and(|handover| handover.outcome == HandoverOutcome::Running)
}

fn is_changing(state: ChainState) -> bool {
    match state {
        ChainState::Starting | ChainState::Recovering | ChainState::Stopping => true,
        ChainState::Down
        | ChainState::Ready
        | ChainState::Done
        | ChainState::Degraded
        | ChainState::Refused => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::fixture::{handover, healthy, troubled};

    #[test]
    fn a_tree_is_ready_only_when_everything_that_should_serve_does() {
        assert_eq!(health(&TreeStatus::default()), Health::Ready);
        assert_eq!(health(&healthy()), Health::Ready);
        assert_eq!(health(&troubled()), Health::Broken);

        let changed = |change: fn(&mut TreeStatus)| {
            let mut status = healthy();
            change(&mut status);
            health(&status)
        };
        assert_eq!(changed(|status| status.tenants[0].state = ChainState::Down), Health::Ready);
        assert_eq!(changed(|status| status.tenants[0].state = ChainState::Recovering), Health::Changing);
        assert_eq!(changed(|status| status.slots[0].state = ChainState::Down), Health::Changing);
        assert_eq!(changed(|status| status.active_slot = None), Health::Changing);
        assert_eq!(
            changed(|status| status.handover = Some(handover(HandoverOutcome::Running, &[]))),
            Health::Changing
        );
    }
}
