//! A tenant's chain: its blueprints in order, on the terms of [`crate::policy`].

use super::dsn::Database;
use super::k3s::K3s;
use super::kine::{Endpoint, Kine};
use super::kube_apiserver::KubeApiserver;
use super::kube_controller_manager::KubeControllerManager;
use super::openbao::OpenBao;
use super::postgres::Postgres;
use super::{Tenant, k3s};
use crate::components::{Components, Program};
use crate::policy::{Policies, Supervised, step};
use berth_actors::host::{Distribution, Guard};
use berth_actors::spec::{Role, Seam, Step};
use berth_actors::status::ChainStatus;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Databases in the tenant's postgres.
pub const KINE_DATABASE: &str = "kine";
pub const OPENBAO_DATABASE: &str = "bao";

/// postgres, OpenBao, kine, guard, the Kubernetes of its distribution and, where given, the cloud controller manager.
pub fn steps(tenant: &Tenant, guard: Arc<dyn Guard>, ccm: Option<Step>, policies: &Policies) -> Vec<Step> {
    let components = tenant.components();
    let mut steps = vec![
        step(Supervised::Postgres, postgres_of(tenant), policies),
        played_by(&components.openbao, step(Supervised::OpenBao, openbao_of(tenant), policies)),
        played_by(&components.kine, step(Supervised::Kine, kine_of(tenant), policies)),
    ];
    let guarded = |step| Step { role: Role::Kubernetes, seam: Seam::Guarded(guard), ..step };
    match tenant.distribution() {
        Distribution::Kubernetes => {
            let apiserver = step(Supervised::KubeApiserver, apiserver_of(tenant), policies);
            steps.push(played_by(&components.kube_apiserver, guarded(apiserver)));
            let controllers = step(Supervised::KubeControllerManager, controllers_of(tenant), policies);
            steps.push(played_by(&components.kube_controller_manager, controllers));
        }
        Distribution::K3s => {
            let k3s = guarded(step(Supervised::K3s, k3s_of(tenant), policies));
            steps.push(match &components.k3s {
                Some(program) => played_by(program, k3s),
                None => k3s,
            });
        }
    }
    steps.extend(ccm);
    steps
}

/// Which Kubernetes a chain was built for, seen from outside.
pub fn distribution_of(chain: &ChainStatus) -> Distribution {
    if chain.children.iter().any(|child| child.name == k3s::NAME) {
        Distribution::K3s
    } else {
        Distribution::Kubernetes
    }
}

pub fn postgres_of(tenant: &Tenant) -> Postgres {
    Postgres {
        seat: tenant.seat().clone(),
        bin: tenant.components().postgres_bin.clone(),
        data: tenant.seat().data.join("pg"),
        access: tenant.accounts().access(),
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
    }
}

fn k3s_of(tenant: &Tenant) -> K3s {
    let components = tenant.components();
    let program = components.k3s.clone();
    let is_real = program.as_ref().is_none_or(|program| program.stand_in.is_none());
    K3s {
        seat: tenant.seat().clone(),
        program,
        etcd: tenant.seat().sockets.join("kine.sock"),
        port: tenant.port(),
        kubeconfig: tenant.kubeconfig(),
        stand_in_env: if is_real { BTreeMap::new() } else { k3s_stand_in_env(components) },
    }
}

/// A stand-in for k3s is real Kubernetes programs in one process's clothes.
fn k3s_stand_in_env(components: &Components) -> BTreeMap<String, String> {
    let path = |program: &Program| program.path.display().to_string();
    BTreeMap::from([
        ("K3S_STANDIN_KUBE_APISERVER".to_owned(), path(&components.kube_apiserver)),
        ("K3S_STANDIN_KUBE_CONTROLLER_MANAGER".to_owned(), path(&components.kube_controller_manager)),
    ])
}

/// `step` says so where `program` is not the real component.
fn played_by(program: &Program, step: Step) -> Step {
    Step { stand_in: program.stand_in.clone(), ..step }
}

#[cfg(test)]
mod tests {
    use super::super::Accounts;
    use super::*;
    use crate::layout::Layout;
    use async_trait::async_trait;
    use berth_actors::host::{PrepareError, WaitNote};
    use berth_actors::spec::Reaction;

    #[derive(Debug)]
    struct Nobody;

    #[async_trait]
    impl Guard for Nobody {
        async fn check(&self, _note: &WaitNote) -> Result<(), PrepareError> {
            Ok(())
        }

        async fn lost(&self) {
            std::future::pending::<()>().await;
        }
    }

    fn chain(distribution: Distribution, k3s: Option<Program>) -> Vec<Step> {
        let program = || Program::real("/bin/x");
        let components = Components {
            postgres_bin: "/bin".into(),
            openbao: program(),
            kine: program(),
            kube_apiserver: program(),
            kube_controller_manager: program(),
            k3s,
            kcp: program(),
            ccm: program(),
        };
        let accounts = Accounts { owner: None, component: "c".into(), daemon: "d".into(), maker: None };
        let layout = Layout::new("/s".into(), Some("/r".into()));
        let tenant = Tenant::new(&layout, "demo", "u", distribution, components, accounts, 16443).unwrap();
        // What the estate appends; here any blueprint will do.
        let policies = Policies::default();
        let ccm = step(Supervised::CloudControllerManager, k3s_of(&tenant), &policies);
        steps(&tenant, Arc::new(Nobody), Some(ccm), &policies)
    }

    fn names(chain: &[Step]) -> Vec<&str> {
        chain.iter().map(|step| step.component.as_str()).collect()
    }

    #[test]
    fn k3s_stands_guarded_in_place_of_the_two_and_rides_through_its_stores() {
        let kubernetes = chain(Distribution::Kubernetes, Some(Program::real("/bin/k3s")));
        let k3s = chain(Distribution::K3s, Some(Program::real("/bin/k3s")));
        let stores = ["postgres", "openbao", "kine"];
        assert_eq!(
            names(&kubernetes),
            [&stores[..], &["kube-apiserver", "kube-controller-manager", "cloud-controller-manager"]]
                .concat()
        );
        assert_eq!(names(&k3s), [&stores[..], &["k3s", "cloud-controller-manager"]].concat());
        let (step, ccm) = (&k3s[3], &k3s[4]);
        assert!(step.role == Role::Kubernetes && matches!(step.seam, Seam::Guarded(_)));
        for earlier in stores {
            assert!(matches!(step.reaction_to(earlier), Reaction::RideThrough(_)), "{earlier}");
        }
        assert!(matches!(ccm.reaction_to("k3s"), Reaction::RideThrough(_)));
    }

    #[test]
    fn a_stand_in_for_k3s_is_marked_and_a_missing_k3s_still_makes_a_chain() {
        let stand_in = Program { stand_in: Some("a test".into()), ..Program::real("/bin/k3s") };
        assert_eq!(chain(Distribution::K3s, Some(stand_in))[3].stand_in.as_deref(), Some("a test"));
        let missing = chain(Distribution::K3s, None);
        assert_eq!((missing[3].component.as_str(), missing[3].stand_in.as_deref()), ("k3s", None));
    }
}
