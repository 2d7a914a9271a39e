//! kube-apiserver: the tenant's Kubernetes. The only component with a port that others know.

use super::administrator::Administrator;
use super::credentials::Credentials;
use super::pki::Pki;
use super::seat::Seat;
use super::{defaults, ports, readyz};
use crate::components::Program;
use async_trait::async_trait;
use berth_actors::host::{
    Blueprint, Context, Distribution, GateError, Listens, PrepareError, Running, WaitNote,
};
use berth_actors::spec::ProcessSpec;
use std::path::PathBuf;

/// The component's name in a chain.
pub const NAME: &str = "kube-apiserver";

#[derive(Debug, Clone)]
pub struct KubeApiserver {
    pub seat: Seat,
    pub program: Program,
    pub pki: Pki,
    /// kine's socket file.
    pub etcd: PathBuf,
    /// Leased: it can neither choose a port itself nor change it.
    pub port: u16,
    /// Where the administrator's kubeconfig goes.
    pub kubeconfig: PathBuf,
}

#[async_trait]
impl Blueprint for KubeApiserver {
    async fn prepare(&self, context: &Context, _note: &WaitNote) -> Result<ProcessSpec, PrepareError> {
        self.seat.claim().await?;
        let this = self.clone();
        self.seat
            .blocking(move || {
                this.pki.ensure()?;
                this.pki.kubeconfig(&this.kubeconfig, "admin", this.port)
            })
            .await?;
        if let Some(taken) = ports::taken([(self.port, "the API")]) {
            return Err(self.seat.retry(taken));
        }
        self.spec(context)
    }

    fn spec(&self, _context: &Context) -> Result<ProcessSpec, PrepareError> {
        Ok(self.seat.spec(NAME, &self.program, self.arguments()))
    }

    fn listens(&self) -> Listens {
        Listens::OneTcp
    }

    async fn ready(&self, _running: &Running, note: &WaitNote) -> Result<(), GateError> {
        let https = self.administrator().https().await.map_err(|reason| {
            GateError::Hopeless(format!("{}: kube-apiserver's probe: {reason}", self.seat.chain))
        })?;
        while let Err(reason) = readyz::ask(&https, self.port).await {
            note.say(reason);
            tokio::time::sleep(defaults::API_PROBE).await;
        }
        Ok(())
    }
}

impl KubeApiserver {
    fn administrator(&self) -> Administrator {
        let credentials = Credentials::of(Distribution::Kubernetes, &self.seat.data);
        Administrator { port: self.port, credentials }
    }

    fn arguments(&self) -> Vec<String> {
        let file = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
        let pki = &self.pki;
        let mut args = vec![
            format!("--etcd-servers=unix://{}", self.etcd.display()),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.port),
            // Without it a host without a default route fails the start.
            "--advertise-address=127.0.0.1".to_owned(),
            // A loopback address is no endpoint others could use; the reconciler would only complain every 10 s.
            "--endpoint-reconciler-type=none".to_owned(),
            file("tls-cert-file", pki.certificate("apiserver")),
            file("tls-private-key-file", pki.key("apiserver")),
            file("client-ca-file", pki.certificate("client-ca")),
            file("requestheader-client-ca-file", pki.certificate("front-proxy-ca")),
            file("proxy-client-cert-file", pki.certificate("front-proxy-client")),
            file("proxy-client-key-file", pki.key("front-proxy-client")),
            file("service-account-key-file", pki.service_account_public()),
            file("service-account-signing-key-file", pki.service_account_key()),
            file("encryption-provider-config", pki.encryption()),
            "--encryption-provider-config-automatic-reload=true".to_owned(),
            format!("--service-cluster-ip-range={}", defaults::SERVICE_RANGE),
            format!("--shutdown-watch-termination-grace-period={}s", defaults::WATCH_GRACE.as_secs()),
        ];
        let rest = [
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            "--anonymous-auth=true",
            "--profiling=false",
        ];
        args.extend(rest.map(str::to_owned));
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apiserver() -> KubeApiserver {
        let seat = Seat::of_demo();
        KubeApiserver {
            pki: Pki { cluster: "demo".into(), dir: "/s/demo/pki".into(), owner: None },
            etcd: "/r/demo/kine.sock".into(),
            kubeconfig: seat.data.join("kubeconfig"),
            seat,
            program: Program::real("/bin/kube-apiserver"),
            port: 16443,
        }
    }

    #[test]
    fn it_seals_what_it_stores_ends_its_watches_and_needs_no_default_route() {
        let args = apiserver().arguments();
        for arg in [
            "--etcd-servers=unix:///r/demo/kine.sock",
            "--secure-port=16443",
            "--encryption-provider-config=/s/demo/pki/encryption.json",
            "--shutdown-watch-termination-grace-period=3s",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
        ] {
            assert!(args.iter().any(|a| a == arg), "{arg} in {args:?}");
        }
    }

    #[tokio::test]
    async fn a_port_in_use_is_named_before_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut apiserver = apiserver();
        apiserver.port = taken.local_addr().unwrap().port();
        apiserver.seat.data = dir.path().join("demo");
        apiserver.seat.logs = dir.path().join("demo/log");
        apiserver.seat.sockets = dir.path().join("run");
        apiserver.kubeconfig = dir.path().join("demo/kubeconfig");
        apiserver.pki.dir = dir.path().join("demo/pki");
        let error = apiserver.prepare(&Context::default(), &WaitNote::default()).await.unwrap_err();
        let text = error.to_string();
        assert!(
            matches!(error, PrepareError::Retry(_)) && text.contains(&apiserver.port.to_string()),
            "{text}"
        );
    }
}
