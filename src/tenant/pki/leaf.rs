//! The certificates of a tenant that are no authority: whom each names, who signs it, what it is for.

use super::super::defaults::FIRST_SERVICE_IP;

/// A leaf, by file name: who signs it, whom it names, what it is for.
pub(super) struct Leaf {
    pub(super) name: &'static str,
    pub(super) ca: &'static str,
    pub(super) common_name: &'static str,
    pub(super) organization: Option<&'static str>,
    pub(super) names: &'static [&'static str],
    pub(super) server: bool,
}

const fn server(name: &'static str, common_name: &'static str, names: &'static [&'static str]) -> Leaf {
    Leaf { name, ca: "server-ca", common_name, organization: None, names, server: true }
}
const fn client(
    name: &'static str,
    ca: &'static str,
    common_name: &'static str,
    organization: Option<&'static str>,
) -> Leaf {
    Leaf { name, ca, common_name, organization, names: &[], server: false }
}

pub(super) const LEAVES: [Leaf; 5] = [
    server(
        "apiserver",
        "kube-apiserver",
        &[
            "127.0.0.1",
            FIRST_SERVICE_IP,
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
        ],
    ),
    server("bao", "openbao", &["127.0.0.1", "localhost"]),
    client("admin", "client-ca", "admin", Some("system:masters")),
    client("kube-controller-manager", "client-ca", "system:kube-controller-manager", None),
    client("front-proxy-client", "front-proxy-ca", "front-proxy-client", None),
];
