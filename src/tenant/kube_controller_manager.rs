//! kube-controller-manager: ready when a fresh namespace gets its ServiceAccount, which its health page does not wait for.

use super::administrator::Administrator;
use super::credentials::Credentials;
use super::fresh_namespace;
use super::pki::Pki;
use super::seat::Seat;
use crate::components::Program;
use crate::files;
use async_trait::async_trait;
use berth_actors::host::{
    Blueprint, Context, Distribution, GateError, Listens, PrepareError, Running, WaitNote,
};
use berth_actors::spec::ProcessSpec;
use std::path::PathBuf;

/// The component's name in a chain.
pub const NAME: &str = "kube-controller-manager";
/// Its own kubeconfig, in the tenant's data directory.
pub(crate) const KUBECONFIG: &str = "kube-controller-manager.kubeconfig";

#[derive(Debug, Clone)]
pub struct KubeControllerManager {
    pub seat: Seat,
    pub program: Program,
    pub pki: Pki,
    /// Port of the API server.
    pub port: u16,
}

#[async_trait]
impl Blueprint for KubeControllerManager {
    async fn prepare(&self, context: &Context, _note: &WaitNote) -> Result<ProcessSpec, PrepareError> {
        self.seat.claim().await?;
        let this = self.clone();
        self.seat
            .blocking(move || {
                this.pki.ensure()?;
                files::private_dir(&this.flex(), this.seat.owner)?;
                this.pki.kubeconfig(&this.own_kubeconfig(), NAME, this.port)
            })
            .await?;
        self.spec(context)
    }

    fn spec(&self, _context: &Context) -> Result<ProcessSpec, PrepareError> {
        Ok(self.seat.spec(NAME, &self.program, self.arguments()))
    }

    fn listens(&self) -> Listens {
        Listens::No
    }

    async fn ready(&self, _running: &Running, note: &WaitNote) -> Result<(), GateError> {
        fresh_namespace::gate(&self.administrator(), note).await.map_err(|reason| {
            GateError::Hopeless(format!("{}: kube-controller-manager's probe: {reason}", self.seat.chain))
        })
    }
}

impl KubeControllerManager {
    fn own_kubeconfig(&self) -> PathBuf {
        self.seat.data.join(KUBECONFIG)
    }

    /// The gate makes a namespace as it.
    fn administrator(&self) -> Administrator {
        let credentials = Credentials::of(Distribution::Kubernetes, &self.seat.data);
        Administrator { port: self.port, credentials }
    }

    /// Else it makes a directory in the host's /usr/libexec.
    fn flex(&self) -> PathBuf {
        self.seat.data.join("flex")
    }

    fn arguments(&self) -> Vec<String> {
        let file = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
        let pki = &self.pki;
        let mut args = vec![
            file("kubeconfig", self.own_kubeconfig()),
            file("authentication-kubeconfig", self.own_kubeconfig()),
            file("authorization-kubeconfig", self.own_kubeconfig()),
            file("service-account-private-key-file", pki.service_account_key()),
            file("root-ca-file", pki.certificate("server-ca")),
            file("client-ca-file", pki.certificate("client-ca")),
            file("cluster-signing-cert-file", pki.certificate("client-ca")),
            file("cluster-signing-key-file", pki.key("client-ca")),
            file("flex-volume-plugin-dir", self.flex()),
        ];
        let rest = [
            "--secure-port=0",
            // There is one: an election would only leave 18 s without a leader after each stop.
            "--leader-elect=false",
            "--use-service-account-credentials=true",
            "--allocate-node-cidrs=false",
            "--profiling=false",
            // At the default rate its first useful act comes after 5 s.
            "--kube-api-qps=200",
            "--kube-api-burst=400",
        ];
        args.extend(rest.map(str::to_owned));
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_on_nothing_elects_nobody_and_stays_in_its_directory() {
        let seat = Seat::of_demo();
        let controllers = KubeControllerManager {
            pki: Pki { cluster: "demo".into(), dir: "/s/demo/pki".into(), owner: None },
            seat,
            program: Program::real("/bin/kcm"),
            port: 16443,
        };
        let args = controllers.arguments();
        for arg in [
            "--secure-port=0",
            "--leader-elect=false",
            "--flex-volume-plugin-dir=/s/demo/flex",
            "--kube-api-qps=200",
        ] {
            assert!(args.iter().any(|a| a == arg), "{arg} in {args:?}");
        }
    }
}
