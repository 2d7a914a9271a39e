//! The rest of a scripted host: an estate of fake chains, a front without sockets, a lease without an API server.

use super::{Diary, FakeComponent, FakeGuard, FakeHost, step};
use crate::canary::Cadence;
use crate::child::actor::Outside;
use crate::data_adoption::{AdoptionError, AdoptionPlan, Consent};
use crate::handover::{Record, Side, Wish};
use crate::host::{
    Changes, Dataplane, Distribution, DrainReport, Estate, Findings, History, Journal, KcpApi, Lease,
    NoPulse, Recorded, TenantRecord,
};
use crate::identity::SlotName;
use crate::policy::RestartPolicy;
use crate::root::{Kcp, World};
use crate::spec::{Reaction, Seam, Step};
use crate::status::{FrontStatus, FrontTarget};
use async_trait::async_trait;
use futures::stream;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{broadcast, watch};

/// A whole outside that a test holds in its hand.
#[derive(Debug, Clone, Default)]
pub struct FakeWorld {
    pub host: FakeHost,
    pub diary: Diary,
    components: Arc<Mutex<BTreeMap<String, FakeComponent>>>,
    policies: Arc<Mutex<BTreeMap<String, RestartPolicy>>>,
    guards: Arc<Mutex<BTreeMap<String, FakeGuard>>>,
    state: Arc<Mutex<State>>,
    stalled: watch::Sender<Option<String>>,
    /// Where somebody tells of changes of the lease.
    lease_told: Option<watch::Sender<()>>,
}

#[derive(Debug, Default)]
struct State {
    /// Who a slot leads as, where it is not `host_<slot>`; `None`: it has not tried yet.
    leaders: BTreeMap<SlotName, Option<String>>,
    tenants: BTreeMap<String, TenantRecord>,
    record: Option<Record>,
    target: Option<(SlotName, SocketAddr)>,
    lease: Option<Lease>,
    torn: BTreeSet<String>,
    broken_canary: bool,
    pulse: Option<Result<Duration, NoPulse>>,
    cadence: Option<Cadence>,
    broken_disk: bool,
    past: Vec<Record>,
    findings: Findings,
    looks_at_the_clock: u32,
}

fn record(name: &str) -> TenantRecord {
    TenantRecord {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        distribution: Distribution::default(),
        run: true,
        paused: None,
        erase: false,
    }
}

impl FakeWorld {
    /// The component behind `demo/kine`; made on first use.
    pub fn component(&self, id: &str) -> FakeComponent {
        let mut components = self.components.lock().unwrap_or_else(PoisonError::into_inner);
        components.entry(id.to_owned()).or_default().clone()
    }

    /// The identity guard of a tenant; made on first use.
    pub fn guard(&self, tenant: &str) -> FakeGuard {
        let mut guards = self.guards.lock().unwrap_or_else(PoisonError::into_inner);
        guards.entry(tenant.to_owned()).or_default().clone()
    }

    /// The restart policy of `demo/kine`, where it is not the default, for daemons that start from now on.
    pub fn set_policy(&self, id: &str, policy: RestartPolicy) {
        self.policies.lock().unwrap_or_else(PoisonError::into_inner).insert(id.to_owned(), policy);
    }

    /// A tenant that exists before the daemon starts.
    pub fn with_tenant(self, name: &str) -> Self {
        self.state().tenants.insert(name.to_owned(), record(name));
        self
    }

    /// A tenant whose deletion a dead daemon left half-done.
    pub fn with_half_deleted(self, name: &str) -> Self {
        let world = self.with_tenant(name);
        if let Some(record) = world.state().tenants.get_mut(name) {
            (record.run, record.erase) = (false, true);
        }
        world
    }

    pub fn with_record(self, record: Record) -> Self {
        self.state().record = Some(record);
        self
    }

    /// From now on, `journal ready`, `put demo` or `erase demo` does its work and answers only after [`Self::resume`].
    pub fn stall(&self, call: &str) {
        self.stalled.send_replace(Some(call.to_owned()));
    }

    pub fn resume(&self) {
        self.stalled.send_replace(None);
    }

    async fn answer(&self, call: String) {
        // The sender is part of this world, so the wait ends with a resume or never.
        let _ = self.stalled.subscribe().wait_for(|stalled| stalled.as_ref() != Some(&call)).await;
    }

    pub fn set_leader(&self, slot: SlotName, identity: Option<&str>) {
        self.state().leaders.insert(slot, identity.map(str::to_owned));
    }

    /// Somebody holds the lease.
    pub fn set_lease(&self, holder: &str) {
        let holder = holder.to_owned();
        self.state().lease = Some(Lease { holder, uid: "1".into(), resource_version: "1".into() });
        self.lease_told.iter().for_each(|told| told.send_replace(()));
    }

    /// Nobody holds it.
    pub fn drop_lease(&self) {
        self.state().lease = None;
        self.lease_told.iter().for_each(|told| told.send_replace(()));
    }

    /// Changes of the lease are told.
    #[must_use]
    pub fn with_lease_watch(self) -> Self {
        Self { lease_told: Some(watch::Sender::new(())), ..self }
    }

    pub fn break_canary(&self) {
        self.state().broken_canary = true;
    }

    /// The serving slot has a canary that flies at `cadence`.
    #[must_use]
    pub fn with_canary(self, cadence: Cadence) -> Self {
        self.state().cadence = Some(cadence);
        self
    }

    /// What comes of flights that begin from now on.
    pub fn set_pulse(&self, pulse: Result<Duration, NoPulse>) {
        self.state().pulse = Some(pulse);
    }

    /// While broken, no record can be written or erased.
    pub fn break_disk(&self, broken: bool) {
        self.state().broken_disk = broken;
    }

    /// The durable record of a tenant.
    pub fn tenant_record(&self, name: &str) -> Option<TenantRecord> {
        self.state().tenants.get(name).cloned()
    }

    fn disk(&self) -> Result<(), String> {
        if self.state().broken_disk { Err("no space left on device".to_owned()) } else { Ok(()) }
    }

    pub fn target(&self) -> Option<SlotName> {
        self.state().target.map(|(slot, _)| slot)
    }

    /// Whether desired state has this tenant, and wants it to run.
    pub fn desired(&self, name: &str) -> Option<bool> {
        self.state().tenants.get(name).map(|record| record.run)
    }

    /// The history.
    pub fn past(&self) -> Vec<Record> {
        self.state().past.clone()
    }

    /// What the next examination finds.
    pub fn set_findings(&self, findings: Findings) {
        self.state().findings = findings;
    }

    pub fn record(&self) -> Option<Record> {
        self.state().record.clone()
    }

    /// The daemon dies at once. What it asked for and was not answered is still done, or never.
    #[must_use]
    pub fn after_a_crash(&self) -> Self {
        self.host.crash();
        self.stalled.send_replace(None);
        Self { host: self.host.reborn(), ..self.clone() }
    }

    /// A tenant's record as no daemon wrote it.
    pub fn set_record(&self, record: TenantRecord) {
        self.state().tenants.insert(record.name.clone(), record);
    }

    pub fn tear_record(&self, name: &str) {
        self.state().torn.insert(name.to_owned());
    }

    pub fn forget_tenant(&self, name: &str) {
        self.state().tenants.remove(name);
    }

    /// The world as the root takes it.
    pub fn world(&self) -> World {
        let outside = Outside {
            processes: Arc::new(self.host.clone()),
            listeners: Arc::new(self.host.clone()),
            events: broadcast::channel(64).0,
        };
        let kcp = Kcp {
            api: Arc::new(self.clone()),
            journal: Arc::new(self.clone()),
            dataplane: Arc::new(self.clone()),
            drain_limit: Duration::from_secs(4),
            canary: self.state().cadence,
        };
        World { outside, estate: Arc::new(self.clone()), kcp: Some(kcp), starts_at_once: 2 }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn chain(&self, chain: &str, names: &[&str]) -> Vec<Step> {
        let policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        let of_name = |name: &&str| {
            let id = format!("{chain}/{name}");
            let restart = policies.get(&id).cloned().unwrap_or_default();
            Step { restart, ..step(name, &self.component(&id)) }
        };
        names.iter().map(of_name).collect()
    }
}

#[async_trait]
impl Estate for FakeWorld {
    fn store(&self) -> Result<Vec<Step>, String> {
        Ok(self.chain(crate::root::STORE, &["postgres"]))
    }

    fn slot(&self, slot: SlotName) -> Result<Vec<Step>, String> {
        let mut steps = self.chain(slot.chain(), &["kine", "kcp"]);
        if let Some(kcp) = steps.last_mut() {
            kcp.reactions.insert("kine".to_owned(), Reaction::RideThrough(Duration::from_secs(20)));
        }
        Ok(steps)
    }

    fn tenant(&self, name: &str) -> Result<Vec<Step>, String> {
        let mut steps = self.chain(name, &["postgres", "kine", "apiserver"]);
        if let Some(apiserver) = steps.last_mut() {
            apiserver.seam = Seam::Guarded(Arc::new(self.guard(name)));
        }
        Ok(steps)
    }

    fn new_tenant(&self, name: &str) -> Result<TenantRecord, String> {
        if name.contains('/') {
            return Err(format!("{name} is not a name"));
        }
        Ok(record(name))
    }

    async fn tenants(&self) -> Result<Recorded, String> {
        self.host.alive().await;
        let state = self.state();
        let (torn, whole): (Vec<_>, Vec<_>) =
            state.tenants.values().cloned().partition(|record| state.torn.contains(&record.name));
        let unreadable = torn.into_iter().map(|record| (record.name, "its record is torn".to_owned()));
        Ok(Recorded { tenants: whole, unreadable: unreadable.collect() })
    }

    async fn put_tenant(&self, record: &TenantRecord) -> Result<(), String> {
        self.host.alive().await;
        self.disk()?;
        self.diary.write(format!("put {} {}", record.name, record.run));
        self.state().tenants.insert(record.name.clone(), record.clone());
        self.answer(format!("put {}", record.name)).await;
        Ok(())
    }

    async fn place_restored(&self, record: &TenantRecord, staging: &Path) -> Result<(), String> {
        self.diary.write(format!("place {} from {}", record.name, staging.display()));
        self.put_tenant(record).await
    }

    async fn plan_adoption(&self, name: &str) -> Result<AdoptionPlan, AdoptionError> {
        self.host.alive().await;
        let refusal =
            self.guard(name).verdict().ok_or_else(|| AdoptionError::Refused("no refusal".into()))?;
        let digest = format!("plan of {refusal}");
        Ok(AdoptionPlan { differs: vec![refusal], changes: vec![], beware: vec![], take_over: None, digest })
    }

    async fn adopt_data(&self, name: &str, consent: &Consent) -> Result<(), AdoptionError> {
        let plan = self.plan_adoption(name).await?;
        if plan.digest != consent.plan {
            return Err(AdoptionError::Refused("that is another plan".into()));
        }
        self.diary.write(format!("adopt {name}"));
        self.answer(format!("adopt {name}")).await;
        self.guard(name).set(None);
        Ok(())
    }

    async fn erase_tenant(&self, name: &str) -> Result<(), String> {
        self.host.alive().await;
        self.disk()?;
        self.diary.write(format!("erase {name}"));
        self.state().tenants.remove(name);
        self.answer(format!("erase {name}")).await;
        Ok(())
    }
}

#[async_trait]
impl Dataplane for FakeWorld {
    async fn retarget(&self, target: Option<(SlotName, SocketAddr)>) {
        self.host.alive().await;
        self.diary.write(format!("retarget {:?}", target.map(|(slot, _)| slot)));
        self.state().target = target;
    }

    async fn drain(&self, slot: SlotName, _limit: Duration) -> DrainReport {
        self.host.alive().await;
        self.diary.write(format!("drain {slot}"));
        DrainReport { held: 1, ..DrainReport::default() }
    }

    fn status(&self) -> FrontStatus {
        let target = self.state().target.map(|(slot, address)| FrontTarget { slot, address });
        FrontStatus { target, ..FrontStatus::default() }
    }
}

#[async_trait]
impl Journal for FakeWorld {
    async fn write(&self, record: &Record) -> Result<(), String> {
        self.host.alive().await;
        self.state().record = Some(record.clone());
        self.answer(format!("journal {}", record.phase)).await;
        Ok(())
    }

    async fn read(&self) -> Result<Option<Record>, String> {
        self.host.alive().await;
        let record = self.record();
        self.answer("journal read".to_owned()).await;
        Ok(record)
    }

    async fn remember(&self, record: &Record) -> Result<(), String> {
        self.host.alive().await;
        let mut state = self.state();
        if !state.past.iter().any(|past| past.began == record.began) {
            state.past.push(record.clone());
        }
        Ok(())
    }

    async fn history(&self) -> Result<History, String> {
        self.host.alive().await;
        Ok(History { records: self.past(), unreadable: Vec::new() })
    }

    fn now(&self) -> String {
        let mut state = self.state();
        state.looks_at_the_clock += 1;
        format!("2026-12-01T00:00:{:02}Z", state.looks_at_the_clock)
    }
}

/// The lease is taken by whoever asks while there is none, as a candidate's retry would.
#[async_trait]
impl KcpApi for FakeWorld {
    async fn lease(&self, _through: SocketAddr) -> Result<Option<Lease>, String> {
        self.host.alive().await;
        let slot = [SlotName::A, SlotName::B]
            .into_iter()
            .find(|slot| self.host.pid(&format!("{}/kcp", slot.chain())).is_some());
        let mut state = self.state();
        if state.lease.is_none()
            && let Some(slot) = slot
        {
            let holder = match state.leaders.get(&slot) {
                Some(leader) => leader.clone(),
                None => Some(format!("host_{slot}")),
            };
            let Some(holder) = holder else { return Ok(None) };
            state.lease = Some(Lease { holder, uid: "1".into(), resource_version: "1".into() });
        }
        Ok(state.lease.clone())
    }

    async fn lease_changes(&self, _through: SocketAddr) -> Result<Changes, String> {
        self.host.alive().await;
        let Some(told) = self.lease_told.as_ref().map(watch::Sender::subscribe) else {
            return Err("nobody tells".to_owned());
        };
        Ok(Box::pin(stream::unfold(told, |mut told| async {
            told.changed().await.ok().map(|()| ((), told))
        })))
    }

    async fn delete_lease(&self, _through: SocketAddr, lease: &Lease) -> Result<bool, String> {
        self.host.alive().await;
        self.diary.write(format!("delete-lease {}", lease.holder));
        let lives = |slot: &SlotName| {
            lease.holder == format!("host_{slot}")
                && self.host.pid(&format!("{}/kcp", slot.chain())).is_some()
        };
        if [SlotName::A, SlotName::B].iter().any(lives) {
            self.diary.write(format!("under-a-leader {}", lease.holder));
        }
        self.state().lease = None;
        self.lease_told.iter().for_each(|told| told.send_replace(()));
        Ok(true)
    }

    async fn leader_identity(&self, slot: SlotName) -> Result<Option<String>, String> {
        self.host.alive().await;
        let leader = self.state().leaders.get(&slot).cloned();
        Ok(leader.unwrap_or_else(|| Some(format!("host_{slot}"))))
    }

    async fn canary(&self, _old: SocketAddr, _new: SocketAddr) -> Result<(), String> {
        self.host.alive().await;
        if self.state().broken_canary { Err("the watch on the new slot saw nothing".into()) } else { Ok(()) }
    }

    async fn pulse(&self, address: SocketAddr, deadline: Duration) -> Result<Duration, NoPulse> {
        self.host.alive().await;
        self.diary.write(format!("pulse {address}"));
        let pulse = self.state().pulse.clone().unwrap_or(Ok(Duration::from_millis(4)));
        if pulse == Err(NoPulse::Silent) {
            tokio::time::sleep(deadline).await;
        }
        pulse
    }

    async fn stage(&self, slot: SlotName, wish: &Wish) -> Result<(), String> {
        self.host.alive().await;
        self.diary.write(format!("stage {slot} {wish}"));
        Ok(())
    }

    async fn promote(&self, slot: SlotName) -> Result<(), String> {
        self.host.alive().await;
        self.diary.write(format!("promote {slot}"));
        Ok(())
    }

    async fn side(&self, _slot: SlotName) -> Side {
        self.host.alive().await;
        Side { version: Some("v1".to_owned()), ..Side::default() }
    }

    async fn examine(&self, _slot: SlotName, _wish: &Wish) -> Findings {
        self.host.alive().await;
        self.state().findings.clone()
    }
}
