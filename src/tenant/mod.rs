//! One tenant cluster: its components as blueprints, and the chain that is made of them.
//!
//! ```text
//! ports uids pki kubeconfig         what a tenant is given once: ports, a uid, keys
//! credentials                       where its certificates lie, whoever made them
//! postgres openbao kine             its stores; postgres and kine also serve the kcp slots
//! kube_apiserver kube_controller_manager   one distribution of Kubernetes
//! k3s                               the other
//! administrator                     the daemon as a client of their API servers
//! readyz fresh_namespace            what their gates ask
//! asked sealed                      what a rotation of credentials asks of those that run, and has them seal anew
//! stack                             all of them in order, with policies from `defaults`
//! ```
//! A blueprint prepares files and databases and knows when its component truly serves. It never spawns, signals or
//! restarts anything: the tree does, through the host traits.

pub(crate) mod administrator;
pub(crate) mod asked;
mod config_file;
pub mod credentials;
pub mod defaults;
pub mod dsn;
mod fresh_namespace;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
pub mod k3s;
pub mod kine;
pub mod kube_apiserver;
pub mod kube_controller_manager;
pub mod kubeconfig;
pub mod openbao;
pub mod pki;
pub mod ports;
pub mod postgres;
mod readyz;
pub(crate) mod sealed;
pub mod seat;
pub mod stack;
pub mod uids;

use crate::components::Components;
use crate::layout::{Layout, RunDirTooLong};
use crate::names::{self, BadName};
use administrator::Administrator;
use berth_actors::host::Distribution;
use berth_actors::spec::User;
use credentials::Credentials;
use pki::Pki;
use postgres::Access;
use seat::Seat;
use std::path::PathBuf;

/// The accounts a tenant's processes and its daemon have in the eyes of the kernel: peer authentication needs the names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accounts {
    /// Who the components run as; `None` when the daemon is not root and everything runs as the daemon's own account.
    pub owner: Option<User>,
    /// Name of that account in the user database. initdb and peer authentication refuse a uid without one.
    pub component: String,
    /// Name of the daemon's own account.
    pub daemon: String,
    /// The cluster's own uid is the `owner`, which has no name: what wants one runs as this account, before there is data.
    pub maker: Option<User>,
}

impl Accounts {
    /// Of a cluster that has a uid of its own.
    pub fn with_own(&self, own: User) -> Self {
        Self { owner: Some(own), maker: self.maker.or(self.owner), ..self.clone() }
    }

    /// Who may connect to their postgres.
    pub fn access(&self) -> Access {
        match self.maker {
            None => Access::Named(vec![self.component.clone(), self.daemon.clone()]),
            Some(maker) => Access::Own { daemon: self.daemon.clone(), maker },
        }
    }
}

/// One tenant cluster as the blueprints need to know it.
#[derive(Debug, Clone)]
pub struct Tenant {
    name: String,
    uid: String,
    distribution: Distribution,
    seat: Seat,
    accounts: Accounts,
    components: Components,
    port: u16,
}

/// A tenant that cannot be laid out on this host.
#[derive(Debug, thiserror::Error)]
pub enum TenantError {
    #[error(transparent)]
    Name(#[from] BadName),
    #[error(transparent)]
    Sockets(#[from] RunDirTooLong),
}

impl Tenant {
    /// `uid` and `distribution` never change in the life of the cluster; `port` is the first one leased to it (see
    /// [`ports`]).
    pub fn new(
        layout: &Layout,
        name: &str,
        uid: &str,
        distribution: Distribution,
        components: Components,
        accounts: Accounts,
        port: u16,
    ) -> Result<Self, TenantError> {
        names::cluster(name)?;
        let data = layout.cluster(name);
        let seat = Seat {
            chain: name.to_owned(),
            logs: data.join("log"),
            sockets: layout.sockets(name)?,
            owner: accounts.owner,
            temporary: accounts.maker.map(|_| data.join("tmp")),
            data,
        };
        Ok(Self {
            name: name.to_owned(),
            uid: uid.to_owned(),
            distribution,
            seat,
            accounts,
            components,
            port,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }
    pub fn uid(&self) -> &str {
        &self.uid
    }
    pub fn distribution(&self) -> Distribution {
        self.distribution
    }
    pub fn seat(&self) -> &Seat {
        &self.seat
    }
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }
    pub fn components(&self) -> &Components {
        &self.components
    }
    /// The port its API server serves on, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }
    /// Its API server as a URL.
    pub fn server(&self) -> String {
        kubeconfig::server(self.port)
    }
    pub fn credentials(&self) -> Credentials {
        Credentials::of(self.distribution, &self.seat.data)
    }
    pub fn pki(&self) -> Pki {
        Pki { cluster: self.name.clone(), dir: self.seat.data.join(pki::DIR), owner: self.seat.owner }
    }
    pub(crate) fn administrator(&self) -> Administrator {
        Administrator { port: self.port, credentials: self.credentials() }
    }
    /// The cluster administrator's kubeconfig, for others.
    pub fn kubeconfig(&self) -> PathBuf {
        self.seat.data.join("kubeconfig")
    }
}
