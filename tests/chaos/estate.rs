//! The stand-ins' chains, and a kcp API of four lines. Records, port leases and erasure are the real estate's.

use super::blueprint::{Listen, StandIn, Upstream};
use super::line::{Place, ask};
use async_trait::async_trait;
use berth::components::{Components, Program};
use berth::estate::HostEstate;
use berth::kcp::{KcpConfig, Releases};
use berth::layout::Layout;
use berth::policy::Policies;
use berth::tenant::Accounts;
use berth::tenant::ports::Ports;
use berth::tenant::uids::Uids;
use berth::{fault, files};
use berth_actors::data_adoption::{AdoptionError, AdoptionPlan, Consent};
use berth_actors::handover::{Side, Wish};
use berth_actors::host::{Changes, Estate, Findings, KcpApi, Lease, NoPulse, Recorded, TenantRecord};
use berth_actors::identity::SlotName;
use berth_actors::root::STORE;
use berth_actors::spec::Step;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Below the ephemeral ports, so that no connection of the storm's own takes one.
const PORTS: RangeInclusive<u16> = 21_000..=24_999;

#[derive(Debug, Clone)]
pub struct StandIns {
    layout: Layout,
    real: HostEstate,
    ports: Arc<Ports>,
}

impl StandIns {
    pub fn new(layout: &Layout) -> Self {
        let ports = || Ports::with_range(layout.state().join("ports.json"), PORTS);
        let program = Program::real("/nowhere");
        let components = Components {
            postgres_bin: "/nowhere".into(),
            openbao: program.clone(),
            kine: program.clone(),
            kube_apiserver: program.clone(),
            kube_controller_manager: program.clone(),
            kcp: program.clone(),
            k3s: None,
            ccm: program.clone(),
        };
        let kcp = KcpConfig {
            layout: layout.clone(),
            program,
            kube_apiserver: "/nowhere".into(),
            stand_in_knobs: BTreeMap::new(),
            front_port: 0,
            shutdown_delay: Duration::ZERO,
            ports: None,
            releases: Releases::open(layout).unwrap(),
            goaway_chance: berth::kcp::defaults::GOAWAY_CHANCE,
            owner: None,
        };
        let accounts =
            Accounts { owner: None, component: "chaos".into(), daemon: "chaos".into(), maker: None };
        // Its processes are the storm's own account's.
        let uids = Uids::with_range(layout.state().join("uids.json"), 0..0);
        let leases = (ports(), uids);
        let real = HostEstate::new(layout.clone(), components, accounts, kcp, leases, Policies::default());
        Self { layout: layout.clone(), real, ports: Arc::new(ports()) }
    }

    pub fn files(&self) -> HostEstate {
        self.real.clone()
    }

    fn chain(&self, chain: &str, tenant: bool) -> Result<StandIn, String> {
        let data = if tenant { self.layout.cluster(chain) } else { self.layout.kcp_chain(chain) };
        let sockets = self.layout.sockets(chain).map_err(|error| error.to_string())?;
        Ok(StandIn {
            chain: chain.to_owned(),
            name: "postgres",
            listen: Listen::Socket(sockets.join("postgres.sock")),
            upstream: Upstream::Itself,
            leads: None,
            data,
            sockets,
        })
    }
}

#[async_trait]
impl Estate for StandIns {
    fn store(&self) -> Result<Vec<Step>, String> {
        Ok(vec![self.chain(STORE, false)?.step(&[])])
    }

    fn slot(&self, slot: SlotName) -> Result<Vec<Step>, String> {
        let store = self.layout.sockets(STORE).map_err(|error| error.to_string())?.join("postgres.sock");
        let base = self.chain(slot.chain(), false)?;
        let kine =
            StandIn { name: "kine", listen: Listen::Same, upstream: Upstream::Socket(store), ..base.clone() };
        let kcp = StandIn {
            name: "kcp",
            listen: Listen::Same,
            upstream: Upstream::Step("kine"),
            leads: Some(base.data.join("leads")),
            ..base
        };
        Ok(vec![kine.step(&[]), kcp.step(&["kine"])])
    }

    fn tenant(&self, name: &str) -> Result<Vec<Step>, String> {
        let port = self.ports.lease(name, 1).map_err(|error| error.to_string())?;
        let base = self.chain(name, true)?;
        let socket = |name: &str| base.sockets.join(format!("{name}.sock"));
        let kine = StandIn {
            name: "kine",
            listen: Listen::Socket(socket("kine")),
            upstream: Upstream::Socket(socket("postgres")),
            ..base.clone()
        };
        let server = StandIn {
            name: "kube-apiserver",
            listen: Listen::Leased(port),
            upstream: Upstream::Socket(socket("kine")),
            ..base.clone()
        };
        let controllers = StandIn {
            name: "kube-controller-manager",
            listen: Listen::Socket(socket("controllers")),
            upstream: Upstream::Step("kube-apiserver"),
            ..base.clone()
        };
        Ok(vec![
            base.step(&[]),
            kine.step(&["postgres"]),
            server.step(&["postgres", "kine"]),
            controllers.step(&["postgres", "kine"]),
        ])
    }

    fn new_tenant(&self, name: &str) -> Result<TenantRecord, String> {
        self.real.new_tenant(name)
    }

    async fn tenants(&self) -> Result<Recorded, String> {
        self.real.tenants().await
    }

    async fn put_tenant(&self, record: &TenantRecord) -> Result<(), String> {
        self.real.put_tenant(record).await
    }

    async fn place_restored(&self, record: &TenantRecord, staging: &Path) -> Result<(), String> {
        self.real.place_restored(record, staging).await
    }

    async fn plan_adoption(&self, name: &str) -> Result<AdoptionPlan, AdoptionError> {
        self.real.plan_adoption(name).await
    }

    async fn adopt_data(&self, name: &str, consent: &Consent) -> Result<(), AdoptionError> {
        self.real.adopt_data(name, consent).await
    }

    async fn erase_tenant(&self, name: &str) -> Result<(), String> {
        self.real.erase_tenant(name).await
    }
}

#[async_trait]
impl KcpApi for StandIns {
    async fn lease(&self, through: SocketAddr) -> Result<Option<Lease>, String> {
        let holder = ask(&Place::Port(through), "get lease").await?;
        Ok((holder != "-").then(|| Lease { uid: holder.clone(), resource_version: "1".into(), holder }))
    }

    async fn lease_changes(&self, _through: SocketAddr) -> Result<Changes, String> {
        Err("a stand-in tells nobody".to_owned())
    }

    async fn delete_lease(&self, through: SocketAddr, lease: &Lease) -> Result<bool, String> {
        let dropped = ask(&Place::Port(through), &format!("drop lease {}", lease.holder)).await;
        fault::point("lease-deleted");
        dropped.map(|_| true)
    }

    async fn leader_identity(&self, slot: SlotName) -> Result<Option<String>, String> {
        let path = self.layout.kcp_chain(slot.chain()).join("leads");
        let bytes = files::read_optional(&path).map_err(|error| error.to_string())?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    async fn canary(&self, old: SocketAddr, new: SocketAddr) -> Result<(), String> {
        ask(&Place::Port(old), &format!("put canary {}", new.port())).await?;
        match ask(&Place::Port(new), "get canary").await?.parse::<u16>() {
            Ok(port) if port == new.port() => Ok(()),
            seen => Err(format!("the new slot saw {seen:?}")),
        }
    }

    async fn pulse(&self, _: SocketAddr, _: Duration) -> Result<Duration, NoPulse> {
        Err(NoPulse::Unasked("a stand-in has no watches".to_owned()))
    }

    async fn stage(&self, slot: SlotName, _wish: &Wish) -> Result<(), String> {
        let dir = self.layout.kcp_chain(slot.chain());
        files::private_dir(&dir, None).map_err(|error| error.to_string())?;
        files::write_atomic(&dir.join("staged"), b"shared", None).map_err(|error| error.to_string())
    }

    async fn promote(&self, _slot: SlotName) -> Result<(), String> {
        Ok(())
    }

    async fn side(&self, _slot: SlotName) -> Side {
        Side::default()
    }

    async fn examine(&self, _slot: SlotName, _wish: &Wish) -> Findings {
        Findings::default()
    }
}
