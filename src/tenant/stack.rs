//! A tenant's chain: its blueprints in order, on the terms of [`crate::policy`].

use super::Tenant;
use super::dsn::Database;
use super::kine::{Endpoint, Kine};
use super::kube_apiserver::KubeApiserver;
use super::kube_controller_manager::KubeControllerManager;
use super::openbao::OpenBao;
use super::postgres::Postgres;
use crate::components::Program;
use crate::policy::{Policies, Supervised, step};
use berth_actors::host::Guard;
use berth_actors::spec::{Role, Seam, Step};
use std::sync::Arc;

/// Databases in the tenant's postgres.
pub const KINE_DATABASE: &str = "kine";
pub const OPENBAO_DATABASE: &str = "bao";

/// postgres, OpenBao, kine, guard, kube-apiserver, kube-controller-manager and, where given, the cloud controller manager.
pub fn steps(tenant: &Tenant, guard: Arc<dyn Guard>, ccm: Option<Step>, policies: &Policies) -> Vec<Step> {
    let components = tenant.components();
    let guarded = |step| Step { role: Role::Kubernetes, seam: Seam::Guarded(guard), ..step };
    let mut steps = vec![
        step(Supervised::Postgres, postgres_of(tenant), policies),
        played_by(&components.openbao, step(Supervised::OpenBao, openbao_of(tenant), policies)),
        played_by(&components.kine, step(Supervised::Kine, kine_of(tenant), policies)),
        played_by(
            &components.kube_apiserver,
            guarded(step(Supervised::KubeApiserver, apiserver_of(tenant), policies)),
        ),
        played_by(
            &components.kube_controller_manager,
            step(Supervised::KubeControllerManager, controllers_of(tenant), policies),
        ),
    ];
    steps.extend(ccm);
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

/// `step` says so where `program` is not the real component.
fn played_by(program: &Program, step: Step) -> Step {
    Step { stand_in: program.stand_in.clone(), ..step }
}
