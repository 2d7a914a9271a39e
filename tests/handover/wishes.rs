//! A daemon that is killed where an upgrade or a rotation of certificates writes down what it has come to: afterwards one slot serves, the
//! records say what it runs, and the wish is done, rolled back, or was never begun.

use super::common::release::kcp_calling_itself;
use super::common::{Dev, api};
use super::{Kcp, at_rest, kcp_processes};
use berth::control::api::NewKcp;
use berth::https;
use berth_actors::identity::SlotName;
use berth_actors::status::HandoverOutcome;
use std::time::Duration;

/// What a killed daemon's wish comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It had not begun: nobody remembers it.
    Nothing,
    RolledBack,
    Done,
}

/// What the records say; it must be what runs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Recorded {
    slot: SlotName,
    chosen: Option<String>,
    certificate: Vec<u8>,
}

impl Kcp {
    /// At rest; and the records agree with what runs.
    async fn consistent(&self, dev: &Dev<'_>, after: &str) -> Recorded {
        let status = dev.until("one slot to be alone", at_rest).await;
        assert_eq!(kcp_processes(&self.home.state()), 1, "{after}");
        let slot = status.active_slot.unwrap();
        let chosen = status.upkeep.clone().unwrap().chosen_kcp;
        let certificate = std::fs::read(self.home.layout().kcp_shared().join("apiserver.crt")).unwrap();
        let root = self.home.layout().kcp().join(slot.chain()).join("root");
        assert!(
            std::fs::read(root.join("apiserver.crt")).unwrap() == certificate,
            "{after}: the serving slot has another"
        );
        let answered = https::Https::new(&certificate, None).unwrap();
        let url = format!("https://{}/readyz", self.home.front);
        let (ready, _) = answered.get(&url, Duration::from_secs(30)).await.unwrap();
        assert_eq!(ready, 200, "{after}: and what it shows is trusted");
        Recorded { slot, chosen, certificate }
    }

    /// Wishes, has the daemon die at `point` of it, and returns what the next one made of it, with the daemon.
    async fn killed_at<'a, W, E: std::fmt::Debug>(
        &'a self,
        dev: Dev<'a>,
        point: &str,
        fate: Fate,
        wish: impl AsyncFnOnce(berth::control::Client) -> Result<W, E>,
    ) -> (Dev<'a>, Recorded, Recorded) {
        let before = self.consistent(&dev, point).await;
        let remembered = self.past().len();
        std::fs::write(&self.armed, format!("{point} 0 die")).unwrap();
        assert!(wish(self.home.client()).await.is_err(), "{point}");
        assert!(!dev.ended().success(), "it was killed at {point}");
        let dev = self.daemon(&[]);
        let after = self.consistent(&dev, point).await;
        let past = self.past();
        let outcome = past.get(remembered).map(|handover| &handover.outcome);
        match fate {
            Fate::Nothing => assert_eq!(outcome, None, "{point}"),
            Fate::RolledBack => {
                let said = "the daemon ended in the phase";
                let rolled_back =
                    matches!(outcome, Some(HandoverOutcome::RolledBack(why)) if why.starts_with(said));
                assert!(rolled_back, "{point}: {past:#?}");
            }
            Fate::Done => assert_eq!(outcome, Some(&HandoverOutcome::Done), "{point}"),
        }
        if fate == Fate::Done {
            assert_eq!(after.slot, before.slot.other(), "{point}");
        } else {
            assert_eq!(after, before, "{point}: as if nothing had been asked for");
        }
        (dev, before, after)
    }
}

#[tokio::test]
async fn a_daemon_killed_in_an_upgrade_leaves_one_slot_and_the_version_that_it_runs_recorded() {
    let kcp = Kcp::new();
    let mut dev = kcp.daemon(&[]);
    let points = [
        ("slot-staged", Fate::Nothing),
        ("handover-started", Fate::RolledBack),
        ("handover-retargeted", Fate::Done),
        ("release-promoted", Fate::Done),
    ];
    for (number, (point, fate)) in points.into_iter().enumerate() {
        let version = format!("v1.36.0+kcp-v0.34.{number}-stand-in");
        let path = Some(kcp_calling_itself(&kcp.home, &version, true));
        let wanted = NewKcp { version: None, path, allow_downgrade: false };
        let (next, _, after) =
            kcp.killed_at(dev, point, fate, async |client| client.upgrade_kcp(&wanted).await).await;
        dev = next;
        let runs = kcp.past().pop().and_then(|handover| handover.new.version);
        if fate == Fate::Done {
            assert!(after.chosen.unwrap().contains(&version), "{point}");
            assert_eq!(runs, Some(version), "{point}");
        } else {
            assert_eq!(after.chosen, None, "{point}");
        }
    }
    kcp.home.ok(&["down"]);
    assert!(dev.ended().success());
}

#[tokio::test]
async fn a_daemon_killed_in_a_rotation_leaves_one_slot_and_its_certificate_the_one_that_is_shared() {
    let kcp = Kcp::new();
    let mut dev = kcp.daemon(&[]);
    dev.until("kcp to be served", at_rest).await;
    kcp.home.client().rotate_certificates(false).await.unwrap_err();
    let maps = kcp.written().await;
    let points = [
        ("set-renewed", Fate::Nothing),
        ("handover-ready", Fate::RolledBack),
        ("shared-set-aside", Fate::Done),
        ("set-promoted", Fate::Done),
    ];
    for (point, fate) in points {
        let (next, before, after) =
            kcp.killed_at(dev, point, fate, async |client| client.rotate_certificates(false).await).await;
        dev = next;
        assert_eq!(before.certificate != after.certificate, fate == Fate::Done, "{point}");
        assert_eq!(
            api::read_config_map(&maps, "acknowledged").await,
            "yes",
            "{point}: clients were told before"
        );
    }
    kcp.home.ok(&["down"]);
    assert!(dev.ended().success());
}
