//! The two Kubernetes programs inside the stand-in: their argv, as k3s passes it to its embedded ones.

use super::args::Options;
use super::files::Files;
use super::{NAME, logrus};
use crate::tethered;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Child;

const APISERVER: &str = "K3S_STANDIN_KUBE_APISERVER";
const CONTROLLERS: &str = "K3S_STANDIN_KUBE_CONTROLLER_MANAGER";

/// Where the real programs are, from the environment.
#[derive(Debug)]
pub(super) struct Programs {
    pub apiserver: PathBuf,
    pub controllers: PathBuf,
}

impl Programs {
    pub(super) fn from_env() -> Result<Self, String> {
        let path = |name: &str| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .ok_or_else(|| format!("the stand-in needs {name}, the path of that program"))
        };
        Ok(Self { apiserver: path(APISERVER)?, controllers: path(CONTROLLERS)? })
    }
}

/// Their lines go where the stand-in's go, as those of k3s's embedded ones do.
pub(super) fn spawn(program: &Path, what: &str, args: &[String]) -> Result<Child, String> {
    logrus::info(&format!("Running {what} {}", args.join(" ")));
    tethered::command(NAME, program)
        .args(args)
        .stdin(Stdio::null())
        .spawn()
        .map_err(|error| format!("{what} exited: {}: {error}", program.display()))
}

pub(super) fn apiserver_args(options: &Options, files: &Files) -> Vec<String> {
    let file = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
    let mut args = vec![
        "--allow-privileged=true".to_owned(),
        "--anonymous-auth=false".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--profiling=false".to_owned(),
        format!("--bind-address={}", options.bind_address),
        format!("--secure-port={}", options.port),
        format!("--etcd-servers={}", options.datastore),
        format!("--service-cluster-ip-range={}", options.service_cidr),
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local".to_owned(),
        file("service-account-key-file", files.key("service")),
        file("service-account-signing-key-file", files.key("service")),
        file("client-ca-file", files.certificate("client-ca")),
        file("tls-cert-file", files.certificate("serving-kube-apiserver")),
        file("tls-private-key-file", files.key("serving-kube-apiserver")),
        file("requestheader-client-ca-file", files.certificate("request-header-ca")),
        "--requestheader-allowed-names=system:auth-proxy".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        file("proxy-client-cert-file", files.certificate("client-auth-proxy")),
        file("proxy-client-key-file", files.key("client-auth-proxy")),
    ];
    if !options.advertise_address.is_empty() {
        args.push(format!("--advertise-address={}", options.advertise_address));
    }
    if options.secrets_encryption {
        args.push(file("encryption-provider-config", files.cred.path("encryption-config.json")));
    }
    with(args, &options.apiserver_args)
}

pub(super) fn controllers_args(options: &Options, files: &Files) -> Vec<String> {
    let file = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
    let kubeconfig = files.cred.path("controller.kubeconfig");
    let args = vec![
        "--profiling=false".to_owned(),
        "--bind-address=127.0.0.1".to_owned(),
        "--secure-port=10257".to_owned(),
        "--allocate-node-cidrs=true".to_owned(),
        "--cluster-cidr=10.42.0.0/16".to_owned(),
        format!("--service-cluster-ip-range={}", options.service_cidr),
        "--use-service-account-credentials=true".to_owned(),
        file("kubeconfig", kubeconfig.clone()),
        file("authentication-kubeconfig", kubeconfig.clone()),
        file("authorization-kubeconfig", kubeconfig),
        file("service-account-private-key-file", files.key("service")),
        file("root-ca-file", files.certificate("server-ca")),
        file("cluster-signing-kube-apiserver-client-cert-file", files.certificate("client-ca")),
        file("cluster-signing-kube-apiserver-client-key-file", files.key("client-ca")),
        file("cluster-signing-kubelet-client-cert-file", files.certificate("client-ca")),
        file("cluster-signing-kubelet-client-key-file", files.key("client-ca")),
    ];
    with(args, &options.controller_args)
}

/// The operator's own win: flags are read in their order.
fn with(mut args: Vec<String>, own: &[String]) -> Vec<String> {
    args.extend(own.iter().map(|arg| format!("--{arg}")));
    args
}
