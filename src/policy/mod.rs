//! How each component starts, stops and comes back: the terms the supervision tree keeps it on.
//!
//! ```text
//! defaults ──▶ config ([supervision], an operator's changes) ──▶ Policies ──▶ the steps of every chain
//! ```
//! `config` reads changes over [`defaults`], `estate` builds steps with the result. Nothing here restarts anything: the
//! tree does, by these terms. They are no part of what a process is started with, so a changed one restarts nobody; the
//! next daemon adopts what runs and keeps it on the new terms.

pub mod defaults;
mod life;

pub use life::{Life, RestartKind};

use berth_actors::host::Blueprint;
use berth_actors::spec::{Role, Seam, Step};
use std::fmt;
use std::sync::Arc;

/// Everything that is supervised, in the order of its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Supervised {
    Postgres,
    OpenBao,
    Kine,
    KubeApiserver,
    KubeControllerManager,
    K3s,
    CloudControllerManager,
    StorePostgres,
    SlotKine,
    Kcp,
}

impl Supervised {
    pub const ALL: [Self; 10] = [
        Self::Postgres,
        Self::OpenBao,
        Self::Kine,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::K3s,
        Self::CloudControllerManager,
        Self::StorePostgres,
        Self::SlotKine,
        Self::Kcp,
    ];

    /// What kind of chain it is a step of: a cluster, a slot (both alike) or the kcp store.
    pub const fn chain(self) -> &'static str {
        match self {
            Self::StorePostgres => "kcp-store",
            Self::SlotKine | Self::Kcp => "slot",
            _ => "cluster",
        }
    }

    /// Its name as `berth status` shows it.
    pub const fn component(self) -> &'static str {
        match self {
            Self::Postgres | Self::StorePostgres => "postgres",
            Self::OpenBao => "openbao",
            Self::Kine | Self::SlotKine => "kine",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::K3s => "k3s",
            Self::CloudControllerManager => "cloud-controller-manager",
            Self::Kcp => "kcp",
        }
    }
}

impl fmt::Display for Supervised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.chain(), self.component())
    }
}

/// The terms of everything that is supervised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policies([Life; Supervised::ALL.len()]);

impl Policies {
    pub fn of(lives: impl Fn(Supervised) -> Life) -> Self {
        Self(Supervised::ALL.map(lives))
    }

    pub fn life(&self, of: Supervised) -> Life {
        self.0[of as usize].clone()
    }
}

impl Default for Policies {
    fn default() -> Self {
        Self::of(|of| Life::from(&defaults::terms(of)))
    }
}

/// A plain step on the terms of `of`.
pub fn step(of: Supervised, blueprint: impl Blueprint, policies: &Policies) -> Step {
    let life = policies.life(of);
    Step {
        component: of.component().to_owned(),
        role: Role::Plain,
        seam: Seam::Open,
        blueprint: Arc::new(blueprint),
        restart: life.restart,
        stop: life.stop,
        start_deadline: life.start_deadline,
        reactions: life.reactions,
        stand_in: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_component_is_found_in_its_own_place() {
        for (place, of) in Supervised::ALL.into_iter().enumerate() {
            assert_eq!(of as usize, place, "{of}");
        }
    }
}
