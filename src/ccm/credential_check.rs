//! Refuses a credential that could do more than the controller may (M5): by the file's path and name, by what the kubeconfig
//! says, by the certificate in it, and by whom the API server takes it for.
//!
//! The controller calls it before it talks to the API server and again with the server's answer. An error names the rule
//! and the file; it never holds a token, a key or a line of the file.

use super::access::ACCOUNT;
use crate::one_line::one_line;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::config::{AuthInfo, Cluster, Kubeconfig};
use std::path::{Path, PathBuf};
use x509_parser::prelude::{FromDer, X509Certificate, parse_x509_pem};

/// Members are above all authorization.
const ADMIN_GROUP: &str = "system:masters";
/// Whom the usual installers make their administrators: kubeadm, k3s, kcp, OpenShift, and Berth itself.
const ADMIN_NAMES: [&str; 9] = [
    "admin",
    "system:admin",
    "kubernetes-admin",
    "kubernetes-super-admin",
    "cluster-admin",
    "kube-admin",
    "kubeadmin",
    "kcp-admin",
    "shard-admin",
];
/// Where administrators' own files lie. The last is a tenant's own admin kubeconfig.
const ADMIN_PATHS: [&str; 4] = [".kube/config", "rancher/k3s/k3s.yaml", ".kube/k3s.yaml", "kubeconfig"];

/// One rule that the credential breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("credential refused by the rule \"{rule}\": {file}: {detail}")]
pub(super) struct Refusal {
    pub(super) rule: &'static str,
    pub(super) file: PathBuf,
    pub(super) detail: String,
}

/// Every rule that needs no API server. `file` is the path as configured, `resolved` where its symlinks lead.
pub(super) fn check_file(file: &Path, resolved: &Path, kubeconfig: &Kubeconfig) -> Result<(), Refusal> {
    let refuse =
        |rule, detail: String| Err(Refusal { rule, file: file.to_owned(), detail: one_line(detail) });
    for path in [file, resolved] {
        if is_admin_path(path) {
            return refuse("no admin file", format!("{} is an administrator's kubeconfig", path.display()));
        }
    }
    for context in kubeconfig.contexts.iter().map(|context| &context.name) {
        // kubeadm calls its context <user>@<cluster>.
        if is_admin_name(context.split('@').next().unwrap_or_default()) {
            return refuse("no admin context", format!("it has the context {context}"));
        }
    }
    for cluster in &kubeconfig.clusters {
        if let Some(detail) = cluster.cluster.as_ref().and_then(insecure) {
            return refuse("only verified TLS", format!("the cluster {} {detail}", cluster.name));
        }
    }
    if kubeconfig.auth_infos.is_empty() {
        return refuse("only a client certificate", "it has no user".to_owned());
    }
    for user in &kubeconfig.auth_infos {
        if is_admin_name(&user.name) {
            return refuse("no admin user", format!("it has the user {}", user.name));
        }
        let auth = user.auth_info.clone().unwrap_or_default();
        if let Some(field) = forbidden_field(&auth) {
            return refuse(
                "only a client certificate",
                format!("the user {} has the field {field}", user.name),
            );
        }
        check_certificate(file, &user.name, &auth)?;
    }
    Ok(())
}

/// The API server's own word on who this is (SelfSubjectReview).
pub(super) fn check_review(file: &Path, user: &str, groups: &[String]) -> Result<(), Refusal> {
    let refuse = |detail: String| {
        Err(Refusal { rule: "the API server's review", file: file.to_owned(), detail: one_line(detail) })
    };
    if groups.iter().any(|group| group == ADMIN_GROUP) {
        return refuse(format!("the API server sees {user} in the group {ADMIN_GROUP}"));
    }
    if user != ACCOUNT {
        return refuse(format!("the API server sees {user}, it must be {ACCOUNT}"));
    }
    Ok(())
}

fn is_admin_path(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == "admin")
        || ADMIN_PATHS.iter().any(|admin| path.ends_with(admin))
}

fn is_admin_name(name: &str) -> bool {
    ADMIN_NAMES.iter().any(|admin| name.eq_ignore_ascii_case(admin))
}

fn insecure(cluster: &Cluster) -> Option<&'static str> {
    if cluster.insecure_skip_tls_verify == Some(true) {
        Some("has insecure-skip-tls-verify")
    } else if !cluster.server.as_deref().is_some_and(|server| server.starts_with("https://")) {
        Some("has no https server")
    } else if cluster.certificate_authority.is_none() && cluster.certificate_authority_data.is_none() {
        Some("names no certificate authority")
    } else if cluster.proxy_url.is_some() {
        Some("has a proxy-url")
    } else {
        None
    }
}

/// Anything that makes the credential more, or another one, than the certificate that is checked.
fn forbidden_field(auth: &AuthInfo) -> Option<&'static str> {
    [
        ("exec", auth.exec.is_some()),
        ("auth-provider", auth.auth_provider.is_some()),
        ("as", auth.impersonate.is_some()),
        ("as-uid", auth.impersonate_uid.is_some()),
        ("as-groups", auth.impersonate_groups.is_some()),
        ("as-user-extra", auth.impersonate_user_extra.is_some()),
        ("token", auth.token.is_some()),
        ("tokenFile", auth.token_file.is_some()),
        ("username", auth.username.is_some()),
        ("password", auth.password.is_some()),
        // Read a second time by the client, so what is used could be another than what was checked.
        ("client-certificate", auth.client_certificate.is_some()),
    ]
    .into_iter()
    .find_map(|(field, present)| present.then_some(field))
}

fn check_certificate(file: &Path, user: &str, auth: &AuthInfo) -> Result<(), Refusal> {
    let refuse =
        |rule, detail: String| Err(Refusal { rule, file: file.to_owned(), detail: one_line(detail) });
    let Some(data) = &auth.client_certificate_data else {
        return refuse(
            "only a client certificate",
            format!("the user {user} has no client-certificate-data"),
        );
    };
    let unreadable = || format!("the client-certificate-data of the user {user} is not a certificate");
    let Ok(pem) = STANDARD.decode(data.trim()) else {
        return refuse("only a client certificate", unreadable());
    };
    let Ok((_, pem)) = parse_x509_pem(&pem) else {
        return refuse("only a client certificate", unreadable());
    };
    let Ok((_, certificate)) = X509Certificate::from_der(&pem.contents) else {
        return refuse("only a client certificate", unreadable());
    };
    let subject = certificate.subject();
    if subject.iter_organization().any(|o| o.as_str().is_ok_and(|o| o == ADMIN_GROUP)) {
        return refuse(
            "no admin certificate",
            format!("the user {user} has a certificate of O={ADMIN_GROUP}"),
        );
    }
    for name in subject.iter_common_name().filter_map(|cn| cn.as_str().ok()) {
        if is_admin_name(name) {
            return refuse("no admin certificate", format!("the user {user} has a certificate of CN={name}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

    const FILE: &str = "/data/cloud-controller-manager.kubeconfig";
    const SECRET: &str = "TOPSECRETKEY";

    struct Parts {
        context: &'static str,
        user: &'static str,
        cluster: &'static str,
        auth: &'static str,
        organization: Option<&'static str>,
        common_name: &'static str,
    }

    const GOOD: Parts = Parts {
        context: "tenant",
        user: "ccm",
        cluster: "server: https://127.0.0.1:6443\n    certificate-authority-data: Q0E=",
        auth: "",
        organization: None,
        common_name: ACCOUNT,
    };

    /// A throw-away certificate with any subject: (certificate PEM, key PEM).
    fn self_signed(common_name: &str, organization: Option<&str>) -> (String, String) {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, common_name);
        if let Some(organization) = organization {
            params.distinguished_name.push(DnType::OrganizationName, organization);
        }
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn check(file: &str, parts: &Parts) -> Result<(), Refusal> {
        let Parts { context, user, cluster, auth, organization, common_name } = parts;
        let (certificate, _) = self_signed(common_name, *organization);
        let certificate = STANDARD.encode(certificate);
        let yaml = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: {context}\n\
             clusters:\n- name: c\n  cluster:\n    {cluster}\n\
             contexts:\n- name: {context}\n  context: {{cluster: c, user: {user}}}\n\
             users:\n- name: {user}\n  user:\n    client-certificate-data: {certificate}\n    client-key-data: {SECRET}\n{auth}"
        );
        check_file(Path::new(file), Path::new(file), &Kubeconfig::from_yaml(&yaml).unwrap())
    }

    #[test]
    fn the_minted_kind_passes() {
        assert_eq!(check(FILE, &GOOD), Ok(()));
    }

    #[test]
    fn an_administrators_file_is_refused_by_its_path() {
        for file in [
            "/etc/kubernetes/admin.conf",
            "/etc/kubernetes/super-admin.conf",
            "/data/server/cred/admin.kubeconfig",
            "/etc/rancher/k3s/k3s.yaml",
            "/home/op/.kube/config",
            "/state/clusters/demo/kubeconfig",
        ] {
            let refusal = check(file, &GOOD).unwrap_err();
            assert_eq!((refusal.rule, refusal.file.to_str()), ("no admin file", Some(file)));
        }
        let linked =
            check_file(Path::new(FILE), Path::new("/etc/kubernetes/admin.conf"), &Kubeconfig::default());
        assert_eq!(linked.unwrap_err().rule, "no admin file");
    }

    #[test]
    fn each_rule_refuses_by_its_name_and_shows_no_key() {
        let table = [
            ("no admin context", Parts { context: "kubernetes-admin@kubernetes", ..GOOD }),
            ("no admin context", Parts { context: "system:admin", ..GOOD }),
            ("no admin user", Parts { user: "kubernetes-admin", ..GOOD }),
            ("no admin certificate", Parts { organization: Some(ADMIN_GROUP), ..GOOD }),
            ("no admin certificate", Parts { common_name: "admin", ..GOOD }),
            ("no admin certificate", Parts { common_name: "system:admin", ..GOOD }),
            ("only a client certificate", Parts { auth: "    exec: {command: aws}\n", ..GOOD }),
            ("only a client certificate", Parts { auth: "    as: somebody\n", ..GOOD }),
            ("only a client certificate", Parts { auth: "    as-groups: [g]\n", ..GOOD }),
            ("only a client certificate", Parts { auth: "    as-uid: u\n", ..GOOD }),
            ("only a client certificate", Parts { auth: "    as-user-extra: {a: [b]}\n", ..GOOD }),
            ("only a client certificate", Parts { auth: "    auth-provider: {name: oidc}\n", ..GOOD }),
            ("only a client certificate", Parts { auth: "    token: TOPSECRETTOKEN\n", ..GOOD }),
            ("only a client certificate", Parts { auth: "    tokenFile: /t\n", ..GOOD }),
            ("only a client certificate", Parts { auth: "    username: u\n", ..GOOD }),
            ("only a client certificate", Parts { auth: "    client-certificate: /c\n", ..GOOD }),
            (
                "only verified TLS",
                Parts { cluster: "server: https://h\n    insecure-skip-tls-verify: true", ..GOOD },
            ),
            (
                "only verified TLS",
                Parts { cluster: "server: http://h\n    certificate-authority-data: Q0E=", ..GOOD },
            ),
            ("only verified TLS", Parts { cluster: "server: https://h", ..GOOD }),
            (
                "only verified TLS",
                Parts {
                    cluster: "server: https://h\n    certificate-authority-data: Q0E=\n    proxy-url: http://p",
                    ..GOOD
                },
            ),
        ];
        for (rule, parts) in table {
            let refusal = check(FILE, &parts).expect_err(rule);
            assert_eq!(refusal.rule, rule, "{refusal}");
            let text = refusal.to_string();
            assert!(text.contains(FILE) && !text.contains("TOPSECRET"), "{text}");
        }
    }

    #[test]
    fn a_user_without_a_readable_certificate_is_refused() {
        for auth in ["{}", "{client-certificate-data: '!'}", "{client-certificate-data: Q0E=}"] {
            let yaml = format!("users:\n- name: ccm\n  user: {auth}\n");
            let refusal =
                check_file(Path::new(FILE), Path::new(FILE), &Kubeconfig::from_yaml(&yaml).unwrap());
            assert_eq!(refusal.unwrap_err().rule, "only a client certificate");
        }
        assert!(check_file(Path::new(FILE), Path::new(FILE), &Kubeconfig::default()).is_err());
    }

    #[test]
    fn only_the_own_account_passes_the_review() {
        let groups = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let file = Path::new(FILE);
        assert_eq!(check_review(file, ACCOUNT, &groups(&["system:authenticated"])), Ok(()));
        assert!(check_review(file, ACCOUNT, &groups(&["system:masters"])).is_err());
        assert!(check_review(file, "admin", &groups(&["system:authenticated"])).is_err());
        assert!(check_review(file, "", &[]).is_err());
    }
}
