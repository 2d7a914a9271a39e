//! A group is driven by hand, and by chance.

use super::{Effect, Event, Group, OutOfOrder};
use crate::status::ChainState;
use proptest::prelude::*;

fn chain(index: usize, state: ChainState) -> Event {
    Event::Chain { index, state }
}

/// Three that wait for nobody, and one behind the first two.
fn four() -> Group {
    Group::new(vec![vec![], vec![], vec![], vec![0, 1]]).unwrap()
}

#[test]
fn what_waits_for_nobody_starts_at_once_and_the_rest_when_all_it_waits_for_was_ready() {
    let mut group = four();
    assert_eq!(group.step(Event::Up), [Effect::Up(0), Effect::Up(1), Effect::Up(2)]);
    assert_eq!(group.step(chain(0, ChainState::Ready)), []);
    assert_eq!(group.step(chain(0, ChainState::Recovering)), [], "it was ready: that suffices");
    assert_eq!(group.step(chain(1, ChainState::Ready)), [Effect::Up(3)]);
    assert_eq!(group.step(chain(0, ChainState::Ready)), [], "started once");
}

#[test]
fn going_down_is_one_at_a_time_from_the_last_and_starts_nothing() {
    let mut group = four();
    group.step(Event::Up);
    assert_eq!(group.step(Event::Down), [Effect::Down(2)], "the last one never ran");
    assert_eq!(group.step(chain(1, ChainState::Ready)), []);
    assert_eq!(group.step(chain(0, ChainState::Ready)), []);
    assert_eq!(group.step(chain(2, ChainState::Down)), [Effect::Down(1)]);
    assert_eq!(group.step(Event::Down), [], "asked again, it goes on");
    assert_eq!(group.step(chain(1, ChainState::Down)), [Effect::Down(0)]);
    assert!(!group.is_down());
    assert_eq!(group.step(chain(0, ChainState::Down)), []);
    assert!(group.is_down());
}

#[test]
fn one_that_cannot_be_ended_is_passed_over_and_the_way_down_goes_on() {
    let mut group = four();
    group.step(Event::Up);
    group.step(Event::Down);
    assert_eq!(group.awaited(), Some(2));
    assert_eq!(group.step(Event::Overdue(2)), [Effect::Down(1)]);
    assert_eq!(group.awaited(), Some(1));
    assert_eq!(group.step(chain(1, ChainState::Down)), [Effect::Down(0)]);
    assert_eq!(group.step(chain(0, ChainState::Down)), []);
    assert!(group.has_descended() && !group.is_down());
    assert_eq!(group.step(chain(2, ChainState::Down)), []);
    assert!(group.is_down(), "it ended at last");
}

#[test]
fn a_time_that_is_over_for_one_that_is_down_changes_nothing() {
    let mut group = four();
    group.step(Event::Up);
    group.step(Event::Down);
    assert_eq!(group.step(chain(2, ChainState::Down)), [Effect::Down(1)]);
    assert_eq!(group.step(Event::Overdue(2)), []);
    assert_eq!(group.awaited(), Some(1));
}

#[test]
fn an_operator_stops_one_and_it_stays_down_until_started() {
    let mut group = four();
    group.step(Event::Up);
    assert_eq!(group.step(Event::Stop(0)), [Effect::Down(0)]);
    group.step(chain(0, ChainState::Down));
    assert_eq!(group.step(chain(1, ChainState::Ready)), [], "what waits for it waits on");
    assert_eq!(group.step(Event::Start(0)), [Effect::Up(0)]);
    assert_eq!(group.step(chain(0, ChainState::Ready)), [Effect::Up(3)]);
    assert_eq!(group.arrival(), Ok(false));
}

#[test]
fn a_member_before_what_it_waits_for_is_refused() {
    let refused = Group::new(vec![vec![], vec![2], vec![]]).unwrap_err();
    assert_eq!(refused, OutOfOrder { member: 1, after: 2 });
}

proptest! {
    /// However the chains behave: while the group goes down, one stops only when all behind it are down.
    #[test]
    fn nothing_stops_before_what_stands_behind_it(
        after in prop::collection::vec(prop::collection::vec(0usize..8, 0..3), 1..8),
        told in prop::collection::vec((0usize..8, 0u8..4), 0..60),
    ) {
        let count = after.len();
        let after: Vec<Vec<usize>> =
            after.into_iter().enumerate().map(|(at, of)| of.into_iter().filter(|of| *of < at).collect()).collect();
        let mut group = Group::new(after).unwrap();
        let mut up = vec![false; count];
        let mut effects = group.step(Event::Up);
        let obey = |effects: Vec<Effect>, up: &mut Vec<bool>| for effect in effects {
            if let Effect::Up(index) = effect { up[index] = true }
        };
        obey(std::mem::take(&mut effects), &mut up);
        for (index, what) in told.into_iter().filter(|(index, _)| *index < count) {
            let state = match what { 0 => ChainState::Ready, 1 => ChainState::Recovering, _ => ChainState::Starting };
            if up[index] { obey(group.step(chain(index, state)), &mut up); }
        }
        let mut stopped = Vec::new();
        let mut effects = group.step(Event::Down);
        while let Some(Effect::Down(index)) = effects.pop() {
            prop_assert!(effects.is_empty(), "one at a time");
            stopped.push(index);
            effects = group.step(chain(index, ChainState::Down));
        }
        prop_assert!(group.is_down());
        let all: Vec<usize> = (0..count).rev().filter(|index| up[*index]).collect();
        prop_assert_eq!(stopped, all);
    }
}

#[test]
fn what_an_earlier_daemon_left_goes_on_whatever_it_comes_after() {
    let mut group = four();
    assert_eq!(group.step(Event::Adopt(3)), [Effect::Adopt(3), Effect::Up(3)]);
    assert_eq!(group.step(Event::Up), [Effect::Up(0), Effect::Up(1), Effect::Up(2)]);
    group.step(chain(0, ChainState::Ready));
    assert_eq!(group.step(chain(1, ChainState::Ready)), [], "it runs already");
    assert_eq!(group.step(Event::Down), [Effect::Down(3)]);
}
