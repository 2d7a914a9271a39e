//! The chain of a slot: its own kine on the shared store, then its kcp.

use crate::kcp::{Kcp, KcpConfig};
use crate::policy::{Policies, Supervised, step};
use berth_actors::host::Blueprint;
use berth_actors::identity::SlotName;
use berth_actors::spec::Step;

/// `kine` must listen on one TCP port of 127.0.0.1 and bind the same one again when it restarts: kcp knows its store by
/// that address for as long as it lives (K9).
pub fn slot_steps(
    config: &KcpConfig,
    slot: SlotName,
    kine: impl Blueprint,
    policies: &Policies,
) -> Vec<Step> {
    let kcp = step(Supervised::Kcp, Kcp::new(config.clone(), slot), policies);
    vec![
        step(Supervised::SlotKine, kine, policies),
        Step { stand_in: config.program_of(slot).stand_in, ..kcp },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::Program;
    use crate::kcp::{Releases, defaults};
    use crate::layout::Layout;
    use berth_actors::spec::Reaction;
    use std::time::Duration;

    #[test]
    fn kcp_follows_its_kine_and_rides_through_its_death() {
        let mut program = Program::real("/opt/kcp");
        program.stand_in = Some("no kcp was given".into());
        let layout = Layout::new("/s".into(), None);
        let config = KcpConfig {
            releases: Releases::open(&layout).unwrap(),
            layout,
            program,
            kube_apiserver: "/opt/kube-apiserver".into(),
            stand_in_knobs: std::collections::BTreeMap::new(),
            front_port: 6443,
            shutdown_delay: defaults::SHUTDOWN_DELAY,
            ports: None,
            goaway_chance: defaults::GOAWAY_CHANCE,
            owner: None,
        };
        let kine = Kcp::new(config.clone(), SlotName::A);
        let steps = slot_steps(&config, SlotName::A, kine, &Policies::default());
        let names: Vec<_> = steps.iter().map(|step| step.component.as_str()).collect();
        assert_eq!(names, ["kine", "kcp"]);
        assert_eq!(steps[1].reaction_to("kine"), Reaction::RideThrough(Duration::from_secs(30)));
        assert_eq!(steps[1].stand_in.as_deref(), Some("no kcp was given"));
        assert_eq!(steps[0].stand_in, None);
        let terms = Policies::default();
        for (step, of) in steps.iter().zip([Supervised::SlotKine, Supervised::Kcp]) {
            let life = terms.life(of);
            let has = (&step.restart, step.stop, step.start_deadline);
            assert_eq!(has, (&life.restart, life.stop, life.start_deadline), "{of}");
        }
    }
}
