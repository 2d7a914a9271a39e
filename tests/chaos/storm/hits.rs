//! Each fault as it is done to a system: signals, ports, files, and what is armed for the daemon.

use super::{LOOK, Weather};
use crate::storms::args::Kind;
use crate::storms::blueprint::{RECHECK_WITHIN, STOP_WITHIN};
use crate::storms::census::Process;
use crate::storms::component::{EXIT_AT_START, IGNORE_TERM, MUTE_AT_START};
use crate::storms::plan::{Fault, Trigger};
use crate::storms::system::{DEMO, EXTRA, System};
use berth::control::Client;
use berth::control::api::{Action, CredentialOrder, Rotate};
use berth::fault;
use berth::policy::{Policies, Supervised};
use berth_actors::handover::Wish;
use berth_actors::spec::Reaction;
use rustix::process::Signal;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

impl Weather {
    /// For a place that was armed to be passed, once whatever leads there was done.
    fn strike(&self) -> Duration {
        match self.system.kind {
            Kind::StandIn => Duration::from_millis(500),
            Kind::Real => Duration::from_secs(5),
        }
    }

    /// Longer than the deadlines that a freeze should outlast: the second look, and the stop that follows where it fails.
    fn long(&self) -> Duration {
        match self.system.kind {
            Kind::StandIn => RECHECK_WITHIN + STOP_WITHIN,
            Kind::Real => {
                let policies = Policies::default();
                let lives = Supervised::ALL.map(|of| policies.life(of));
                let rides =
                    lives.iter().flat_map(|life| life.reactions.values()).filter_map(
                        |reaction| match reaction {
                            Reaction::RideThrough(within) => Some(*within),
                            Reaction::Restart => None,
                        },
                    );
                rides.max().unwrap() + lives.iter().map(|life| life.stop.deadline).max().unwrap()
            }
        }
    }

    pub(super) async fn hit(&mut self, fault: Fault) {
        match fault {
            Fault::Kill { pick } => self.kill_any(pick),
            Fault::KillDaemon => self.system.kill_daemon(),
            Fault::Together { pick, apart } => {
                self.kill_main(pick);
                sleep(apart).await;
                self.system.kill_daemon();
            }
            Fault::KillWhileCreated { pick, after } => {
                self.prepare(Trigger::Create).await;
                self.create();
                sleep(after).await;
                let of_extra = |main: &Process| main.component.starts_with(EXTRA);
                let census = self.system.census();
                let mains: Vec<_> =
                    census.mains().into_values().flatten().filter(|main| of_extra(main)).collect();
                if !mains.is_empty() {
                    self.kill(mains[pick as usize % mains.len()]);
                }
            }
            Fault::At { place, trigger, skip, freeze, pick } => {
                self.prepare(trigger).await;
                self.system.arm(place, skip, if freeze { "freeze" } else { "die" });
                self.armed = fault::EXIST;
                self.pull(trigger, pick);
                self.await_strike(place).await;
                if freeze {
                    sleep(LOOK * 5).await;
                    self.system.signal_daemon(Signal::CONT);
                }
            }
            Fault::FreezeUnderRestart { pick } => self.freeze_under_restart(pick).await,
            Fault::FreezeDaemon { pick } => {
                self.system.signal_daemon(Signal::STOP);
                self.kill_main(pick);
                sleep(LOOK * 20).await;
                self.system.signal_daemon(Signal::CONT);
            }
            Fault::FullDisk { pick } => {
                let is_full = self.system.fill_disk();
                if !is_full {
                    self.system.arm(fault::ANY, 0, "full");
                }
                self.kill_main(pick);
                self.create();
                sleep(LOOK * 20).await;
                if is_full {
                    self.system.free_disk();
                } else {
                    self.note("full disk", self.system.disarm());
                }
            }
            Fault::StealPort { pick } => self.steal_port(pick).await,
            Fault::ExitAtStart { pick } => {
                if let Some(main) = self.kill_main(pick) {
                    self.misbehave(&main.component, EXIT_AT_START);
                }
            }
            Fault::MuteAtStart { pick } => {
                if let Some(main) = self.kill_main(pick) {
                    self.misbehave(&main.component, MUTE_AT_START);
                }
            }
            Fault::TurnClock { hours } => self.system.turn_clock(hours),
            Fault::IgnoreTerm => {
                self.misbehave(&format!("{DEMO}/kine"), IGNORE_TERM);
                self.order(|client| async move { drop(client.act(DEMO, Action::Restart).await) });
            }
            Fault::Handover => self.order(|client| async move { drop(client.handover(Wish::Plain).await) }),
            Fault::Create => self.create(),
            Fault::Delete => self.order(|client| async move { drop(client.delete_cluster(EXTRA).await) }),
            Fault::Restart => {
                self.order(|client| async move { drop(client.act(DEMO, Action::Restart).await) });
            }
            Fault::Upgrade => {
                let program = System::program();
                self.order(move |client| async move { drop(client.upgrade(&program).await) });
            }
        }
    }

    fn create(&mut self) {
        self.order(|client| async move { drop(client.create_cluster(EXTRA).await) });
    }

    /// Brings about what a trigger needs, before anything is armed.
    async fn prepare(&mut self, trigger: Trigger) {
        if trigger == Trigger::Handover {
            // There is none unless everything is ready. If it never is, the end of the storm says why.
            let _ = self.settle().await;
        }
        let client = self.system.client();
        let exists = self.system.records().contains_key(EXTRA);
        let prepared = async {
            match trigger {
                Trigger::Create if exists => drop(client.delete_cluster(EXTRA).await),
                Trigger::Delete if !exists => drop(client.create_cluster(EXTRA).await),
                _ => {}
            }
        };
        let _ = timeout(self.bound(), prepared).await;
    }

    fn pull(&mut self, trigger: Trigger, pick: u32) {
        match trigger {
            Trigger::Death => drop(self.kill_main(pick)),
            Trigger::Takeover => {
                self.system.kill_daemon();
                self.system.ensure_daemon();
            }
            Trigger::Restart => {
                self.order(|client| async move { drop(client.act(DEMO, Action::Restart).await) });
            }
            Trigger::Handover => self.order(|client| async move { drop(client.handover(Wish::Plain).await) }),
            Trigger::Rotate => self.order(|client| async move {
                for what in [Rotate::Certificates, Rotate::ServiceAccountKey] {
                    let order = CredentialOrder { what, now: true, keep_days: None };
                    drop(client.rotate_credentials(DEMO, &order).await);
                }
            }),
            Trigger::Create => self.create(),
            Trigger::Delete => {
                self.order(|client| async move { drop(client.delete_cluster(EXTRA).await) });
            }
        }
    }

    /// Until what is armed has struck, or whatever should have led there is over.
    async fn await_strike(&mut self, place: &'static str) {
        let mut calm_since = Instant::now();
        while self.armed && self.system.struck().is_none() {
            while self.orders.try_join_next().is_some() {}
            if !self.orders.is_empty() {
                calm_since = Instant::now();
            }
            if calm_since.elapsed() > self.strike() {
                break;
            }
            sleep(LOOK).await;
        }
        if std::mem::take(&mut self.armed) {
            self.note(place, self.system.disarm());
        }
    }

    fn note(&mut self, armed: &'static str, struck: Option<String>) {
        match struck {
            Some(place) => *self.tally.places.entry(place).or_default() += 1,
            None if fault::EXIST => *self.tally.missed.entry(armed).or_default() += 1,
            None => {}
        }
    }

    pub(super) fn order<F: Future<Output = ()> + Send + 'static>(&mut self, give: impl FnOnce(Client) -> F) {
        let (order, bound) = (give(self.system.client()), self.bound());
        self.orders.spawn(async move {
            let _ = timeout(bound, order).await;
        });
    }

    fn kill_any(&mut self, pick: u32) {
        let census = self.system.census().0;
        if !census.is_empty() {
            self.kill(&census[pick as usize % census.len()]);
        }
    }

    fn kill(&mut self, victim: &Process) {
        victim.signal(Signal::KILL);
        self.killed.push(victim.pid);
    }

    fn kill_main(&mut self, pick: u32) -> Option<Process> {
        let census = self.system.census();
        let mains: Vec<_> = census.mains().into_values().flatten().cloned().collect();
        let victim = mains.get(pick as usize % mains.len().max(1))?.clone();
        self.kill(&victim);
        Some(victim)
    }

    /// The process of `component`, if it has one.
    fn main_of(&self, component: &str) -> Option<Process> {
        self.system.census().mains().get(component)?.first().map(|main| (*main).clone())
    }

    async fn freeze_under_restart(&mut self, pick: u32) {
        let slot = self.status.active_slot.map_or("slot-a", |slot| slot.chain());
        let pairs = [
            (format!("{DEMO}/postgres"), format!("{DEMO}/kine")),
            (format!("{DEMO}/kine"), format!("{DEMO}/kube-apiserver")),
            (format!("{slot}/kine"), format!("{slot}/kcp")),
        ];
        let (upstream, frozen) = &pairs[pick as usize % pairs.len()];
        let Some(frozen) = self.main_of(frozen) else { return };
        frozen.signal(Signal::STOP);
        self.frozen.push(frozen);
        if let Some(upstream) = self.main_of(upstream) {
            self.kill(&upstream);
        }
        sleep(self.long()).await;
    }

    async fn steal_port(&mut self, pick: u32) {
        let slot = self.status.active_slot.map_or("slot-a", |slot| slot.chain());
        let victims = [format!("{slot}/kine"), format!("{slot}/kcp"), format!("{DEMO}/kube-apiserver")];
        let component = &victims[pick as usize % victims.len()];
        let Some((address, main)) = self.address_of(component).zip(self.main_of(component)) else { return };
        self.kill(&main);
        let began = Instant::now();
        while began.elapsed() < LOOK * 30 {
            if let Ok(listener) = TcpListener::bind(address) {
                self.stolen.push(listener);
                sleep(LOOK * 30).await;
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    fn address_of(&self, component: &str) -> Option<SocketAddr> {
        let (chain, name) = component.split_once('/')?;
        let chain = self.status.slots.iter().chain(&self.status.tenants).find(|of| of.name == chain)?;
        chain.children.iter().find(|child| child.name == name)?.address
    }

    fn misbehave(&self, component: &str, how: &str) {
        let Some((chain, name)) = component.split_once('/') else { return };
        let layout = &self.system.layout;
        let kcp_side = chain.starts_with("kcp-") || chain.starts_with("slot-");
        let dir = if kcp_side { layout.kcp_chain(chain) } else { layout.cluster(chain) };
        let _ = fs::write(dir.join(format!("{name}.{how}")), "");
    }
}
