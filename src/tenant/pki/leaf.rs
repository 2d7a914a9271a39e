//! The certificates of a tenant that are no authority: whom each names, who signs it, what it is for.

use super::super::defaults::FIRST_SERVICE_IP;
use super::super::{kube_controller_manager, openbao};

/// A leaf, by file name: who signs it, whom it names, what it is for.
#[derive(Debug)]
pub(crate) struct Leaf {
    pub(crate) name: &'static str,
    pub(super) ca: &'static str,
    pub(super) common_name: &'static str,
    pub(super) organization: Option<&'static str>,
    pub(super) names: &'static [&'static str],
    pub(super) server: bool,
    pub(crate) purpose: &'static str,
    pub(crate) taken_up: TakenUp,
}

/// How whoever uses a leaf comes to know of its successor. Seen on kube-apiserver 1.36 and OpenBao 2.7; that the aggregator's
/// client certificate is watched, Kubernetes says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TakenUp {
    /// It watches the file.
    ByItself,
    /// This component reads it at its start only.
    AtStart(&'static str),
    /// Nothing that runs holds it.
    ByClients,
}

impl Leaf {
    /// Name of the authority that signs it.
    pub(crate) fn ca(&self) -> &'static str {
        self.ca
    }
}

const SERVER: &[&str] = &[
    "127.0.0.1",
    FIRST_SERVICE_IP,
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

const CLIENT: Leaf = Leaf {
    name: "",
    ca: "client-ca",
    common_name: "",
    organization: None,
    names: &[],
    server: false,
    purpose: "",
    taken_up: TakenUp::ByClients,
};

pub(crate) const LEAVES: [Leaf; 5] = [
    Leaf {
        name: "apiserver",
        ca: "server-ca",
        common_name: "kube-apiserver",
        names: SERVER,
        server: true,
        purpose: "what kube-apiserver shows its clients",
        taken_up: TakenUp::ByItself,
        ..CLIENT
    },
    Leaf {
        name: "bao",
        ca: "server-ca",
        common_name: "openbao",
        names: &["127.0.0.1", "localhost"],
        server: true,
        purpose: "what OpenBao shows its clients",
        taken_up: TakenUp::AtStart(openbao::NAME),
        ..CLIENT
    },
    Leaf {
        name: "admin",
        common_name: "admin",
        organization: Some("system:masters"),
        purpose: "the administrator, in the kubeconfig",
        ..CLIENT
    },
    Leaf {
        name: kube_controller_manager::NAME,
        common_name: "system:kube-controller-manager",
        purpose: "kube-controller-manager, to kube-apiserver",
        taken_up: TakenUp::AtStart(kube_controller_manager::NAME),
        ..CLIENT
    },
    Leaf {
        name: "front-proxy-client",
        ca: "front-proxy-ca",
        common_name: "front-proxy-client",
        purpose: "kube-apiserver, to extension API servers",
        taken_up: TakenUp::ByItself,
        ..CLIENT
    },
];
