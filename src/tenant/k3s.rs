//! k3s: a tenant's Kubernetes in one process, as a control plane only. The operator's own program; Berth ships none.
//!
//! It keeps its CAs in the datastore, encrypted with its token, and writes its certificates below its data directory while
//! it starts. So the gate reads them there, and the token must never be lost. It opens several ports, all leased.

mod token;

use super::administrator::Administrator;
use super::credentials::Credentials;
use super::seat::Seat;
use super::{defaults, fresh_namespace, kubeconfig, ports, readyz};
use crate::components::Program;
use crate::files;
use async_trait::async_trait;
use berth_actors::host::{
    Blueprint, Context, Distribution, GateError, Listens, PrepareError, Running, WaitNote,
};
use berth_actors::spec::ProcessSpec;
use std::collections::BTreeMap;
use std::path::PathBuf;
use token::Token;

/// The component's name in a chain.
pub const NAME: &str = "k3s";

/// Its `--data-dir` and, below it, its certificates; both below the tenant's data directory.
const DATA: &str = "k3s";
pub(crate) const TLS: &str = "k3s/server/tls";

#[derive(Debug, Clone)]
pub struct K3s {
    pub seat: Seat,
    /// `None`: this daemon was started without one.
    pub program: Option<Program>,
    /// kine's socket file.
    pub etcd: PathBuf,
    /// The first of [`defaults::K3S_PORTS`] leased ones: it can neither choose nor change them.
    pub port: u16,
    /// Where the administrator's kubeconfig goes.
    pub kubeconfig: PathBuf,
    /// What a stand-in needs beside k3s's own environment; empty for a real one.
    pub stand_in_env: BTreeMap<String, String>,
}

#[async_trait]
impl Blueprint for K3s {
    async fn prepare(&self, context: &Context, _note: &WaitNote) -> Result<ProcessSpec, PrepareError> {
        let spec = self.spec(context)?;
        self.seat.claim().await?;
        let (data, token, owner) = (self.data(), self.token(), self.seat.owner);
        self.seat.blocking(move || files::private_dir(&data, owner)).await?;
        self.seat.blocking(move || token.ensure(owner)).await?;
        if let Some(taken) = ports::taken(self.ports()) {
            return Err(self.seat.retry(taken));
        }
        Ok(spec)
    }

    fn spec(&self, _context: &Context) -> Result<ProcessSpec, PrepareError> {
        let program = self.program.as_ref().ok_or_else(|| {
            self.seat.fatal(
                "this cluster was made with k3s, and this daemon has none: give it --k3s PATH, or k3s in the \
                 section [components] of its configuration",
            )
        })?;
        Ok(self.process(program))
    }

    /// Its ports are known, and more than one.
    fn listens(&self) -> Listens {
        Listens::No
    }

    async fn ready(&self, _running: &Running, note: &WaitNote) -> Result<(), GateError> {
        while let Err(reason) = self.is_ready().await {
            note.say(reason);
            tokio::time::sleep(defaults::API_PROBE).await;
        }
        let this = self.clone();
        let written = self.seat.blocking(move || this.write_kubeconfig()).await;
        written.map_err(|error| GateError::Hopeless(error.to_string()))?;
        fresh_namespace::gate(&self.administrator(), note)
            .await
            .map_err(|reason| GateError::Hopeless(format!("{}: k3s's probe: {reason}", self.seat.chain)))
    }
}

impl K3s {
    fn data(&self) -> PathBuf {
        self.seat.data.join(DATA)
    }

    /// Beside its data directory, not in it: one without the other is worth nothing.
    fn token(&self) -> Token {
        Token { path: self.seat.data.join("k3s-token"), server: self.data().join("server") }
    }

    fn credentials(&self) -> Credentials {
        Credentials::of(Distribution::K3s, &self.seat.data)
    }

    fn administrator(&self) -> Administrator {
        Administrator { port: self.port, credentials: self.credentials() }
    }

    fn ports(&self) -> [(u16, &'static str); defaults::K3S_PORTS as usize] {
        // Adjacent because it does not ask: the API server behind its own listener takes the next port.
        [
            (self.port, "the API"),
            (self.port + 1, "k3s's inner API server"),
            (self.port + 2, "its controller manager"),
            (self.port + 3, "its scheduler"),
        ]
    }

    /// Reads its certificates anew each time: they come to be, or are renewed, while it starts.
    async fn is_ready(&self) -> Result<(), String> {
        let https = self.administrator().https().await;
        let https = https.map_err(|reason| format!("its certificates: {reason}"))?;
        readyz::ask(&https, self.port).await
    }

    /// k3s's own names its cluster, user and context `default`, whichever cluster it is.
    fn write_kubeconfig(&self) -> Result<(), files::FileError> {
        let Credentials { server_ca, admin, admin_key, .. } = &self.credentials();
        let access = kubeconfig::Files {
            cluster: &self.seat.chain,
            user: "admin",
            port: self.port,
            ca: server_ca,
            certificate: admin,
            key: admin_key,
        };
        kubeconfig::write(&self.kubeconfig, &access, self.seat.owner)
    }

    fn process(&self, program: &Program) -> ProcessSpec {
        let mut spec = self.seat.spec(NAME, program, self.arguments());
        // It replaces ~/.kube/k3s.yaml by a link, whose home ever that is.
        spec.env.insert("HOME".to_owned(), self.data().display().to_string());
        spec.env.extend(self.stand_in_env.clone());
        spec
    }

    fn arguments(&self) -> Vec<String> {
        let file = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
        let [_, _, (controllers, _), (scheduler, _)] = self.ports();
        let mut args = vec![
            "server".to_owned(),
            file("data-dir", self.data()),
            format!("--datastore-endpoint=unix://{}", self.etcd.display()),
            file("token-file", self.token().path),
            format!("--https-listen-port={}", self.port),
            format!("--service-cidr={}", defaults::SERVICE_RANGE),
            file("write-kubeconfig", self.data().join("admin.kubeconfig")),
            format!("--kube-controller-manager-arg=secure-port={controllers}"),
            format!("--kube-scheduler-arg=secure-port={scheduler}"),
            // Else it makes a directory in the host's /usr/libexec.
            file("kube-controller-manager-arg=flex-volume-plugin-dir", self.data().join("flex")),
        ];
        let rest = [
            "--write-kubeconfig-mode=600",
            // No kubelet and no containers. Without `rootless` it still keeps an agent's password in /etc/rancher, which
            // only root may write; beside `disable-agent` that word changes nothing but where files go.
            "--disable-agent",
            "--rootless",
            // Else the host's /etc/rancher/k3s/config.yaml adds to this line.
            "--config=/dev/null",
            "--bind-address=127.0.0.1",
            // Without both a host without a default route fails the start.
            "--advertise-address=127.0.0.1",
            "--node-ip=127.0.0.1",
            // A loopback address is no endpoint others could use; the reconciler would only complain every 10 s.
            "--kube-apiserver-arg=endpoint-reconciler-type=none",
            "--secrets-encryption",
            // Either of these alone leaves its cloud controller running, which would write provider ids of its own.
            "--disable-cloud-controller",
            "--disable=servicelb,traefik,coredns,local-storage,metrics-server",
            "--disable-helm-controller",
            "--disable-network-policy",
            "--disable-kube-proxy",
            // There is one of each. With an election a stall of the store ends the whole process.
            "--kube-controller-manager-arg=leader-elect=false",
            "--kube-scheduler-arg=leader-elect=false",
            // At the default rate its first useful act comes after 5 s.
            "--kube-controller-manager-arg=kube-api-qps=200",
            "--kube-controller-manager-arg=kube-api-burst=400",
        ];
        args.extend(rest.map(str::to_owned));
        args
    }
}

#[cfg(test)]
mod tests;
