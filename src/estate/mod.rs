//! Desired state and the chains it asks for: what the tree calls [`Estate`], on this host's directories.
//!
//! The root supervisor calls it when it builds a chain or changes a record; the control API reads files through
//! [`files`]. It starts nothing and decides nothing.

mod backups;
mod credentials;
mod disk;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod inventory;
mod owners;
mod records;
mod renewal;
mod rotation;

use crate::backup::staging;
use crate::ccm::CloudControllerManager;
use crate::components::Components;
use crate::fault;
use crate::files::give_tree;
use crate::guard::{GuardConfig, IdentityGuard, MACHINE_ID, Owner};
use crate::kcp::{KcpConfig, slot_steps};
use crate::layout::Layout;
use crate::names;
use crate::off_thread::off_thread;
use crate::policy::{self, Policies, Supervised};
use crate::process;
use crate::tenant::dsn::Database;
use crate::tenant::kine::{self, Endpoint, Kine};
use crate::tenant::ports::Ports;
use crate::tenant::postgres::{self, Postgres};
use crate::tenant::seat::Seat;
use crate::tenant::uids::Uids;
use crate::tenant::{Accounts, Tenant, defaults, stack};
use async_trait::async_trait;
use berth_actors::data_adoption::{AdoptionError, AdoptionPlan, Consent};
use berth_actors::host::{Distribution, Estate, Recorded, TenantRecord};
use berth_actors::identity::SlotName;
use berth_actors::root::STORE;
use berth_actors::spec::Step;
use disk::Measured;
use owners::Owned;
use records::Records;
use rotation::Turns;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Both slots' kines use this database of the kcp store: it is one store, seen through either slot.
const KCP_DATABASE: &str = "kcp";
/// What a rotation does with files is done in a moment; a backup of a cluster that is deleted ends with its database.
const RECALLED_WITHIN: Duration = Duration::from_secs(10);
/// The last step of a tenant.
const CCM: &str = Supervised::CloudControllerManager.component();

/// The estate of one daemon. Cheap to clone.
#[derive(Debug, Clone)]
pub struct HostEstate(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    layout: Layout,
    components: Components,
    accounts: Accounts,
    kcp: KcpConfig,
    ports: Ports,
    uids: Uids,
    policies: Policies,
    records: Records,
    /// Tenants that may be built: their record is durable and their port leased.
    known: Mutex<BTreeMap<String, Known>>,
    disks: Mutex<BTreeMap<String, Measured>>,
    /// Bytes beyond which a tenant is remarked on.
    tenant_disk: Option<u64>,
    turns: Turns,
    notices: credentials::Notices,
}

#[derive(Debug, Clone)]
struct Known {
    uid: String,
    distribution: Distribution,
    /// The first of its ports.
    port: u16,
    /// For as long as this daemon lives: its chain was built with them.
    owned: Owned,
}

impl Inner {
    /// Names are given again: what was begun for one cluster must not go on in the next one of its name.
    fn is_still(&self, tenant: &Tenant) -> Result<(), String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        still_known(&known, tenant.name(), tenant.uid())
    }
}

impl HostEstate {
    pub fn new(
        layout: Layout,
        components: Components,
        accounts: Accounts,
        kcp: KcpConfig,
        (ports, uids): (Ports, Uids),
        policies: Policies,
    ) -> Self {
        let records = Records::new(layout.clusters());
        let (known, disks) = (Mutex::default(), Mutex::default());
        let tenant_disk = None;
        Self(Arc::new(Inner {
            layout,
            components,
            accounts,
            kcp,
            ports,
            uids,
            policies,
            records,
            known,
            disks,
            tenant_disk,
            turns: Turns::default(),
            notices: credentials::Notices::default(),
        }))
    }

    /// Before anybody else has it.
    pub fn with_disk_cap(mut self, bytes: Option<u64>) -> Self {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.tenant_disk = bytes;
        }
        self
    }

    /// Where a chain of the kcp side lives.
    fn kcp_seat(&self, chain: &str) -> Result<Seat, String> {
        let data = self.0.layout.kcp_chain(chain);
        Ok(Seat {
            chain: chain.to_owned(),
            logs: self.0.layout.logs(chain),
            sockets: self.0.layout.sockets(chain).map_err(|error| error.to_string())?,
            owner: self.0.accounts.owner,
            temporary: None,
            data,
        })
    }

    fn tenant_of(&self, name: &str) -> Result<Tenant, String> {
        let known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        let Known { uid, distribution, port, owned } =
            known.ok_or_else(|| format!("there is no record of the cluster {name}"))?;
        let Inner { layout, components, .. } = &*self.0;
        Tenant::new(layout, name, &uid, distribution, components.clone(), owned.accounts, port)
            .map_err(|error| error.to_string())
    }

    /// All other clusters of this daemon.
    fn neighbours_of(&self, name: &str) -> Vec<Owner> {
        let known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        let owner =
            |(cluster, known): (&String, &Known)| Owner { cluster: cluster.clone(), uid: known.uid.clone() };
        known.iter().filter(|(cluster, _)| *cluster != name).map(owner).collect()
    }

    /// Leases the ports and the uid of a recorded tenant; from then on its chain can be built.
    async fn know(&self, record: &TenantRecord) -> Result<(), String> {
        let TenantRecord { name, uid, distribution, .. } = record.clone();
        let known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner).get(&name).cloned();
        let owned = match known {
            Some(known) => known.owned,
            None => {
                let name = name.clone();
                self.off_thread(move |inner| inner.owner_of(&name)).await?
            }
        };
        let count = match distribution {
            Distribution::Kubernetes => 1,
            Distribution::K3s => defaults::K3S_PORTS,
        };
        let port = self.off_thread(move |inner| inner.ports.lease(&name, count)).await?;
        let mut known = self.0.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(record.name.clone(), Known { uid, distribution, port, owned });
        Ok(())
    }

    /// Runs file work where it blocks nobody.
    async fn off_thread<T, E>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, E> + Send + 'static,
    ) -> Result<T, String>
    where
        T: Send + 'static,
        E: std::fmt::Display + Send + 'static,
    {
        let inner = Arc::clone(&self.0);
        off_thread(move || work(&inner)).await.map_err(|error| error.to_string())
    }
}

fn still_known(known: &BTreeMap<String, Known>, name: &str, uid: &str) -> Result<(), String> {
    if known.get(name).is_some_and(|known| known.uid == uid) {
        return Ok(());
    }
    Err(format!("{name} (uid {uid}) is gone"))
}

/// A new guard of its own: those of one tenant know each other by the lock only.
fn guard_of(tenant: &Tenant) -> IdentityGuard {
    let seat = tenant.seat();
    IdentityGuard::new(GuardConfig {
        owner: Owner { cluster: tenant.name().to_owned(), uid: tenant.uid().to_owned() },
        data_dir: seat.data.clone(),
        socket_dir: seat.sockets.clone(),
        user: seat.owner,
        machine_id: MACHINE_ID.into(),
    })
}

#[async_trait]
impl Estate for HostEstate {
    fn store(&self) -> Result<Vec<Step>, String> {
        let seat = self.kcp_seat(STORE)?;
        let store = Postgres {
            bin: self.0.components.postgres_bin.clone(),
            data: seat.data.join("pg"),
            access: self.0.accounts.access(),
            databases: vec![Database::named(KCP_DATABASE)],
            seat,
        };
        Ok(vec![policy::step(Supervised::StorePostgres, store, &self.0.policies)])
    }

    fn slot(&self, slot: SlotName) -> Result<Vec<Step>, String> {
        let kine = Kine {
            seat: self.kcp_seat(slot.chain())?,
            program: self.0.components.kine.clone(),
            store: self.0.layout.sockets(STORE).map_err(|error| error.to_string())?,
            database: Database::named(KCP_DATABASE),
            endpoint: Endpoint::Loopback,
        };
        let mut steps = slot_steps(&self.0.kcp, slot, kine, &self.0.policies);
        for step in steps.iter_mut().filter(|step| step.component == kine::NAME) {
            step.stand_in.clone_from(&self.0.components.kine.stand_in);
        }
        Ok(steps)
    }

    fn tenant(&self, name: &str) -> Result<Vec<Step>, String> {
        let tenant = self.tenant_of(name)?;
        let seat = tenant.seat();
        let guard = guard_of(&tenant);
        let ccm = CloudControllerManager {
            cluster: tenant.name().to_owned(),
            data_dir: seat.data.clone(),
            server: tenant.server(),
            credentials: tenant.credentials(),
            program: tenant.components().ccm.clone(),
            user: seat.owner,
            output: seat.logs.join(format!("{CCM}.log")),
        };
        let policies = &self.0.policies;
        let ccm = policy::step(Supervised::CloudControllerManager, ccm, policies);
        Ok(stack::steps(&tenant, Arc::new(guard), Some(ccm), policies))
    }

    fn new_tenant(&self, name: &str) -> Result<TenantRecord, String> {
        names::cluster(name).map_err(|error| error.to_string())?;
        self.0.layout.sockets(name).map_err(|error| error.to_string())?;
        let data = self.0.layout.cluster(name);
        if data.symlink_metadata().is_ok() {
            // Without its record it is not ours to fill, nor to remove should the creation fail.
            return Err(format!(
                "{} exists, but there is no record of a cluster {name}: restore clusters/{name}.json, or move the directory away",
                data.display()
            ));
        }
        Ok(TenantRecord {
            name: name.to_owned(),
            uid: uuid::Uuid::new_v4().to_string(),
            distribution: match self.0.components.k3s {
                Some(_) => Distribution::K3s,
                None => Distribution::Kubernetes,
            },
            run: true,
            erase: false,
            paused: None,
        })
    }

    /// Asked while no cluster is being created: a lease without a record is given back; a uid only where no files are left of it.
    async fn tenants(&self) -> Result<Recorded, String> {
        let mut recorded = self.off_thread(|inner| inner.records.all()).await?;
        let known: Vec<String> = recorded.names().map(str::to_owned).collect();
        self.off_thread(move |inner| {
            inner.ports.release_all_but(&known).map_err(|error| error.to_string())?;
            let has_files = |cluster: &str| inner.layout.cluster(cluster).symlink_metadata().is_ok();
            let exists = |cluster: &str| known.iter().any(|known| known == cluster) || has_files(cluster);
            inner.uids.release_all_but(exists).map_err(|error| error.to_string())
        })
        .await?;
        let mut known = Vec::new();
        for record in recorded.tenants {
            match self.know(&record).await {
                Ok(()) => known.push(record),
                // One that cannot be had stops nobody else.
                Err(reason) => drop(recorded.unreadable.insert(record.name, reason)),
            }
        }
        recorded.tenants = known;
        Ok(recorded)
    }

    async fn put_tenant(&self, record: &TenantRecord) -> Result<(), String> {
        self.know(record).await?;
        let record = record.clone();
        fault::point("tenant-leased");
        self.off_thread(move |inner| inner.records.put(&record)).await?;
        fault::point("tenant-recorded");
        Ok(())
    }

    /// The record says first that all of it is to be erased: so a daemon killed before the last word erases what there is.
    async fn place_restored(&self, record: &TenantRecord, staging: &Path) -> Result<(), String> {
        self.know(record).await?;
        let unfinished = TenantRecord { run: false, erase: true, ..record.clone() };
        let (record, staging) = (record.clone(), staging.to_owned());
        let tenant = self.tenant_of(&record.name)?;
        let owner = Owner { cluster: record.name.clone(), uid: record.uid.clone() };
        self.off_thread(move |inner| {
            inner.records.put(&unfinished).map_err(|error| error.to_string())?;
            fault::point("restore-recorded");
            let place = inner.layout.cluster(&record.name);
            let (user, common) = (tenant.seat().owner, inner.accounts.owner);
            if let Some((own, common)) = user.zip(common).filter(|(own, common)| own != common) {
                give_tree(&staging, |uid| uid == common.uid, own).map_err(|e| e.to_string())?;
            }
            staging::give_place(&staging, &place, owner, user).map_err(|e| e.to_string())?;
            fault::point("restore-placed");
            inner.records.put(&record).map_err(|error| error.to_string())
        })
        .await?;
        fault::point("restore-done");
        Ok(())
    }

    async fn plan_adoption(&self, name: &str) -> Result<AdoptionPlan, AdoptionError> {
        let tenant = self.tenant_of(name).map_err(AdoptionError::Failed)?;
        guard_of(&tenant).plan_adoption(&self.neighbours_of(name)).await
    }

    async fn adopt_data(&self, name: &str, consent: &Consent) -> Result<(), AdoptionError> {
        let tenant = self.tenant_of(name).map_err(AdoptionError::Failed)?;
        guard_of(&tenant).adopt(consent, &self.neighbours_of(name)).await
    }

    /// The record goes last: a daemon killed in between finds the tenant and can delete it again.
    async fn erase_tenant(&self, name: &str) -> Result<(), String> {
        let turn = self.0.turns.recall(name, RECALLED_WITHIN).await;
        let _turn = turn.map_err(|refusal| format!("{name} was not erased: {refusal}"))?;
        let sockets = self.0.layout.sockets(name).map_err(|error| error.to_string())?;
        let tenant = self.tenant_of(name).ok();
        let own = tenant.as_ref().and_then(|tenant| tenant.accounts().maker.and(tenant.seat().owner));
        if let Some(tenant) = tenant.filter(|_| own.is_none())
            && let Err(error) = stack::postgres_of(&tenant).give_back_memory().await
        {
            // A torn directory starts nothing; the deletion is what was asked for.
            tracing::warn!(cluster = name, %error, "shared memory of its killed postgres may be left: see ipcs -m");
        }
        let gone = name.to_owned();
        self.off_thread(move |inner| {
            if let Some(own) = own {
                process::leave_nothing_of(own.uid)
                    .map_err(|source| records::RecordError::Left { uid: own.uid, source })?;
            }
            records::remove_tree(&sockets)?;
            fault::point("erase-sockets-gone");
            records::remove_tree(&postgres::outside(&inner.layout.cluster(&gone)))?;
            records::remove_tree(&inner.layout.cluster(&gone))?;
            fault::point("erase-files-gone");
            inner.ports.release(&gone).map_err(records::RecordError::Ports)?;
            fault::point("erase-port-released");
            inner.uids.release(&gone).map_err(records::RecordError::Uids)?;
            fault::point("erase-uid-released");
            inner.records.remove(&gone)
        })
        .await?;
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_begun_for_one_cluster_does_not_go_on_in_the_next_of_its_name() {
        let accounts = Accounts { owner: None, component: String::new(), daemon: String::new(), maker: None };
        let owned = Owned { accounts, waits: false };
        let known = Known { uid: "b".to_owned(), distribution: Distribution::Kubernetes, port: 1, owned };
        let known = BTreeMap::from([("demo".to_owned(), known)]);
        assert_eq!(still_known(&known, "demo", "b"), Ok(()));
        assert_eq!(still_known(&known, "demo", "a").unwrap_err(), "demo (uid a) is gone");
        assert!(still_known(&known, "other", "b").is_err());
    }
}
