//! The chain of a slot: its own kine on the shared store, then its kcp.

use crate::kcp::{Kcp, KcpConfig, defaults};
use berth_actors::host::Blueprint;
use berth_actors::identity::SlotName;
use berth_actors::spec::{Reaction, Role, Seam, Step};
use std::collections::BTreeMap;
use std::sync::Arc;

/// `kine` must listen on one TCP port of 127.0.0.1 and bind the same one again when it restarts: kcp knows its store by
/// that address for as long as it lives (K9).
pub fn slot_steps(config: &KcpConfig, slot: SlotName, kine: Arc<dyn Blueprint>) -> Vec<Step> {
    vec![
        Step {
            component: "kine".into(),
            role: Role::Plain,
            seam: Seam::Open,
            blueprint: kine,
            restart: defaults::kine_restart(),
            stop: defaults::KINE_STOP,
            start_deadline: defaults::KINE_START,
            reactions: BTreeMap::new(),
            stand_in: None,
        },
        Step {
            component: "kcp".into(),
            role: Role::Plain,
            seam: Seam::Open,
            blueprint: Arc::new(Kcp::new(config.clone(), slot)),
            restart: defaults::kcp_restart(),
            stop: defaults::KCP_STOP,
            start_deadline: defaults::KCP_START,
            reactions: BTreeMap::from([(
                "kine".to_owned(),
                Reaction::RideThrough(defaults::KCP_RIDES_THROUGH_KINE),
            )]),
            stand_in: config.program.stand_in.clone(),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::components::Program;
    use crate::layout::Layout;

    #[test]
    fn kcp_follows_its_kine_and_rides_through_its_death() {
        let mut program = Program::real("/opt/kcp");
        program.stand_in = Some("no kcp was given".into());
        let config = KcpConfig {
            layout: Layout::new("/s".into(), None),
            program,
            kube_apiserver: "/opt/kube-apiserver".into(),
            stand_in_knobs: std::collections::BTreeMap::new(),
            front_port: 6443,
            shutdown_delay: defaults::SHUTDOWN_DELAY,
            owner: None,
        };
        let kine = Arc::new(Kcp::new(config.clone(), SlotName::A));
        let steps = slot_steps(&config, SlotName::A, kine);
        let names: Vec<_> = steps.iter().map(|step| step.component.as_str()).collect();
        assert_eq!(names, ["kine", "kcp"]);
        assert_eq!(steps[1].reaction_to("kine"), Reaction::RideThrough(defaults::KCP_RIDES_THROUGH_KINE));
        assert_eq!(steps[1].stand_in.as_deref(), Some("no kcp was given"));
        assert_eq!(steps[0].stand_in, None);
    }

    #[test]
    fn starts_that_only_ever_time_out_reach_the_intensity() {
        let policy = defaults::kcp_restart();
        let one_life = defaults::KCP_START + defaults::KCP_STOP.deadline + policy.max_delay;
        assert!(one_life * policy.intensity < policy.window);
    }
}
