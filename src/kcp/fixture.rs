//! The five files as a real kcp writes them, for tests: leaf and CA in one file, two users with a token each.

use crate::files;
use crate::kcp::material;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use sha2::{Digest, Sha256};
use std::path::Path;
use time::{Duration, OffsetDateTime};

pub(crate) struct Fixture {
    pub certificate: Vec<u8>,
    pub key: Vec<u8>,
    pub service_account_key: Vec<u8>,
    pub token_store: Vec<u8>,
    pub kubeconfig: Vec<u8>,
    pub shard_admin: String,
    pub kcp_admin: String,
}

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::expiring(crate::clock::now() + Duration::days(365))
    }

    pub(crate) fn expiring(not_after: OffsetDateTime) -> Self {
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.distinguished_name.push(DnType::CommonName, "192.0.2.2-ca@1764540000");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_certificate = ca.self_signed(&ca_key).unwrap();

        let key = KeyPair::generate().unwrap();
        let mut leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        leaf.distinguished_name.push(DnType::CommonName, "192.0.2.2@1764540000");
        leaf.not_before = crate::clock::now() - Duration::hours(1);
        leaf.not_after = not_after;
        let issuer = Issuer::new(ca, ca_key);
        let certificate = leaf.signed_by(&key, &issuer).unwrap().pem() + &ca_certificate.pem();

        let shard_admin = uuid::Uuid::new_v4().to_string();
        let kcp_admin = uuid::Uuid::new_v4().to_string();
        Self {
            kubeconfig: admin_kubeconfig(&certificate, &kcp_admin, &shard_admin).into_bytes(),
            certificate: certificate.into_bytes(),
            key: key.serialize_pem().into_bytes(),
            service_account_key: KeyPair::generate().unwrap().serialize_pem().into_bytes(),
            token_store: Sha256::digest(&shard_admin).to_vec(),
            shard_admin,
            kcp_admin,
        }
    }

    pub(crate) fn write(&self, dir: &Path) {
        files::private_dir(dir, None).unwrap();
        for (name, bytes) in [
            (material::SERVICE_ACCOUNT_KEY, &self.service_account_key),
            (material::CERTIFICATE, &self.certificate),
            (material::KEY, &self.key),
            (material::TOKEN_STORE, &self.token_store),
            (material::KUBECONFIG, &self.kubeconfig),
        ] {
            files::write_atomic(&dir.join(name), bytes, None).unwrap();
        }
    }
}

fn admin_kubeconfig(certificate: &str, kcp_admin: &str, shard_admin: &str) -> String {
    let authority = BASE64.encode(certificate);
    let clusters = [("base", ""), ("root", "/clusters/root"), ("system:admin", "/clusters/system:admin")].map(|(name, path)| {
        format!(
            "- cluster:\n    certificate-authority-data: {authority}\n    server: https://127.0.0.1:6443{path}\n  name: {name}\n"
        )
    });
    let contexts = [
        ("base", "base", "kcp-admin"),
        ("root", "root", "kcp-admin"),
        ("shard-base", "base", "shard-admin"),
        ("system:admin", "system:admin", "shard-admin"),
    ]
    .map(|(name, cluster, user)| {
        format!("- context:\n    cluster: {cluster}\n    user: {user}\n  name: {name}\n")
    });
    let users = [("kcp-admin", kcp_admin), ("shard-admin", shard_admin)]
        .map(|(name, token)| format!("- name: {name}\n  user:\n    token: {token}\n"));
    format!(
        "apiVersion: v1\nclusters:\n{}contexts:\n{}current-context: root\nkind: Config\npreferences: {{}}\nusers:\n{}",
        clusters.concat(),
        contexts.concat(),
        users.concat()
    )
}
