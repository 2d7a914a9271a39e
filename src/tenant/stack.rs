//! A tenant's chain: its blueprints in order, with their policies and what each does when an earlier one dies (G2).

use super::defaults::{self, Life};
use super::dsn::Database;
use super::kine::{Endpoint, Kine};
use super::kube_apiserver::KubeApiserver;
use super::kube_controller_manager::KubeControllerManager;
use super::openbao::OpenBao;
use super::postgres::Postgres;
use super::{Tenant, kine, kube_apiserver, kube_controller_manager, openbao, postgres};
use berth_actors::host::{Blueprint, Guard};
use berth_actors::spec::{Reaction, Role, Seam, Step};
use std::sync::Arc;

/// Databases in the tenant's postgres.
pub const KINE_DATABASE: &str = "kine";
pub const OPENBAO_DATABASE: &str = "bao";

/// postgres, OpenBao, kine, guard, kube-apiserver, kube-controller-manager and, where given, the cloud controller manager.
pub fn steps(tenant: &Tenant, guard: Arc<dyn Guard>, ccm: Option<Step>) -> Vec<Step> {
    let components = tenant.components();
    let kine = kine_of(tenant);
    let apiserver = apiserver_of(tenant);
    let controllers = controllers_of(tenant);
    let stand_in = |program: &crate::components::Program| program.stand_in.clone();
    let mut steps = vec![
        step(postgres::NAME, postgres_of(tenant), defaults::postgres()),
        riding(step(openbao::NAME, openbao_of(tenant), defaults::openbao()), &[postgres::NAME]),
        riding(step(kine::NAME, kine, defaults::kine()), &[postgres::NAME, openbao::NAME]),
        Step {
            role: Role::Kubernetes,
            seam: Seam::Guarded(guard),
            ..riding(
                step(kube_apiserver::NAME, apiserver, defaults::kube_apiserver()),
                &[postgres::NAME, openbao::NAME, kine::NAME],
            )
        },
        // Not the API server: a settled controller manager needs up to 24 s to find it again, a restart 0.5 s.
        riding(
            step(kube_controller_manager::NAME, controllers, defaults::kube_controller_manager()),
            &[postgres::NAME, openbao::NAME, kine::NAME],
        ),
    ];
    let programs = [
        None,
        stand_in(&components.openbao),
        stand_in(&components.kine),
        stand_in(&components.kube_apiserver),
        stand_in(&components.kube_controller_manager),
    ];
    for (step, stand_in) in steps.iter_mut().zip(programs) {
        step.stand_in = stand_in;
    }
    if let Some(ccm) = ccm {
        let earlier: Vec<&str> = steps.iter().map(|step| step.component.as_str()).collect();
        let ccm = riding(ccm, &earlier);
        steps.push(ccm);
    }
    steps
}

fn postgres_of(tenant: &Tenant) -> Postgres {
    let accounts = tenant.accounts();
    Postgres {
        seat: tenant.seat().clone(),
        bin: tenant.components().postgres_bin.clone(),
        data: tenant.seat().data.join("pg"),
        accounts: vec![accounts.component.clone(), accounts.daemon.clone()],
        databases: vec![Database::named(KINE_DATABASE), Database::named(OPENBAO_DATABASE)],
    }
}

fn openbao_of(tenant: &Tenant) -> OpenBao {
    OpenBao {
        seat: tenant.seat().clone(),
        program: tenant.components().openbao.clone(),
        pki: tenant.pki(),
        store: tenant.seat().sockets.clone(),
        database: Database::named(OPENBAO_DATABASE),
    }
}

fn kine_of(tenant: &Tenant) -> Kine {
    Kine {
        seat: tenant.seat().clone(),
        program: tenant.components().kine.clone(),
        store: tenant.seat().sockets.clone(),
        database: Database::named(KINE_DATABASE),
        endpoint: Endpoint::Socket(tenant.seat().sockets.join("kine.sock")),
    }
}

fn apiserver_of(tenant: &Tenant) -> KubeApiserver {
    KubeApiserver {
        seat: tenant.seat().clone(),
        program: tenant.components().kube_apiserver.clone(),
        pki: tenant.pki(),
        etcd: tenant.seat().sockets.join("kine.sock"),
        port: tenant.port(),
        kubeconfig: tenant.kubeconfig(),
    }
}

fn controllers_of(tenant: &Tenant) -> KubeControllerManager {
    KubeControllerManager {
        seat: tenant.seat().clone(),
        program: tenant.components().kube_controller_manager.clone(),
        pki: tenant.pki(),
        port: tenant.port(),
        kubeconfig: tenant.kubeconfig(),
    }
}

/// A step that no earlier one matters to yet. The kcp store's postgres is one by itself.
pub fn step(component: &str, blueprint: impl Blueprint, life: Life) -> Step {
    Step {
        component: component.to_owned(),
        role: Role::Plain,
        seam: Seam::Open,
        blueprint: Arc::new(blueprint),
        restart: life.restart,
        stop: life.stop,
        start_deadline: life.start_deadline,
        reactions: std::collections::BTreeMap::new(),
        stand_in: None,
    }
}

/// `step` keeps running while one of `earlier` is away, unless it already says otherwise.
fn riding(mut step: Step, earlier: &[&str]) -> Step {
    for name in earlier {
        step.reactions.entry((*name).to_owned()).or_insert(Reaction::RideThrough(defaults::RIDE_THROUGH));
    }
    step
}
