//! kube-apiserver: the tenant's Kubernetes. The only component with a port that others know.

use super::pki::Pki;
use super::seat::Seat;
use super::{defaults, kubeconfig, ports};
use crate::components::Program;
use crate::https::Https;
use async_trait::async_trait;
use berth_actors::host::{Blueprint, Context, GateError, Listens, PrepareError, Running, WaitNote};
use berth_actors::spec::ProcessSpec;
use http::StatusCode;
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
                kubeconfig::write(&this.kubeconfig, &this.pki, "admin", "admin", this.port)
            })
            .await?;
        if !ports::is_free(self.port) {
            let port = self.port;
            return Err(self.seat.retry(format!(
                "its port {port} is in use by another program: `ss -lptn sport = :{port}` names it"
            )));
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
        let https = self.client().await.map_err(|reason| {
            GateError::Hopeless(format!("{}: kube-apiserver's probe: {reason}", self.seat.chain))
        })?;
        let url = format!("{}/readyz", kubeconfig::server(self.port));
        loop {
            match https.get(&url, defaults::PROBE_ANSWER).await {
                Ok((StatusCode::OK, _)) => return Ok(()),
                Ok((status, body)) => note.say(format!("readyz {}{}", status.as_u16(), failed_checks(&body))),
                Err(error) => note.say(error.to_string()),
            }
            tokio::time::sleep(defaults::API_PROBE).await;
        }
    }
}

impl KubeApiserver {
    async fn client(&self) -> Result<Https, String> {
        let read = |path: PathBuf| async move {
            tokio::fs::read(&path).await.map_err(|error| format!("read {}: {error}", path.display()))
        };
        let ca = read(self.pki.certificate("server-ca")).await?;
        let (certificate, key) =
            (read(self.pki.certificate("admin")).await?, read(self.pki.key("admin")).await?);
        Https::new(&ca, Some((&certificate, &key))).map_err(|error| error.to_string())
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

/// The names of the checks a readyz answer calls failed: `, failing: etcd, poststarthook/...`.
fn failed_checks(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let failed: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("[-]"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    if failed.is_empty() { String::new() } else { format!(", failing: {}", failed.join(", ")) }
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

    #[test]
    fn an_operator_reads_which_checks_fail() {
        let body = b"[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststarthook/x failed: y\nreadyz check failed\n";
        assert_eq!(failed_checks(body), ", failing: etcd, poststarthook/x");
        assert_eq!(failed_checks(b"Unauthorized"), "");
    }
}
