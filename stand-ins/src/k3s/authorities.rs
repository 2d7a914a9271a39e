//! The certificates k3s makes for itself: three CAs, and the leaves of a control plane, where and as k3s writes them.

use super::files::Dir;
use super::sec1;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use std::io;
use time::{Duration, OffsetDateTime};

const LIFETIME: Duration = Duration::days(365);
const CA_LIFETIME: Duration = Duration::days(3650);
/// k3s does not backdate; a clock a little behind must not fail a test.
const BACKDATE: Duration = Duration::hours(1);

/// Creates what is missing below `tls`; what is there stays. Blocking.
pub(super) fn ensure(tls: &Dir, service_ip: &str) -> io::Result<()> {
    let now = crate::clock::now();
    let server = Authority::ensure(tls, "server-ca", "k3s-server-ca", now)?;
    let client = Authority::ensure(tls, "client-ca", "k3s-client-ca", now)?;
    let proxy = Authority::ensure(tls, "request-header-ca", "k3s-request-header-ca", now)?;
    let names = [
        "127.0.0.1",
        "::1",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        service_ip,
    ];
    server.leaf(tls, "serving-kube-apiserver", "kube-apiserver", None, &names, now)?;
    client.leaf(tls, "client-admin", "system:admin", Some("system:masters"), &[], now)?;
    client.leaf(tls, "client-kube-apiserver", "system:apiserver", Some("system:masters"), &[], now)?;
    client.leaf(tls, "client-controller", "system:kube-controller-manager", None, &[], now)?;
    client.leaf(tls, "client-scheduler", "system:kube-scheduler", None, &[], now)?;
    client.leaf(tls, "client-k3s-cloud-controller", "k3s-cloud-controller-manager", None, &[], now)?;
    proxy.leaf(tls, "client-auth-proxy", "system:auth-proxy", None, &[], now)?;
    if !tls.has("service.key") {
        tls.write("service.key", &sec1::write(&KeyPair::generate().map_err(io::Error::other)?)?)?;
    }
    Ok(())
}

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    is_client: bool,
}

impl Authority {
    fn ensure(tls: &Dir, file: &str, name: &str, now: OffsetDateTime) -> io::Result<Self> {
        let (certificate, key) = (format!("{file}.crt"), format!("{file}.key"));
        if !tls.has(&key) {
            let made = KeyPair::generate().map_err(io::Error::other)?;
            let mut params = params(&format!("{name}@{}", now.unix_timestamp()), None, now, CA_LIFETIME);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages = vec![
                KeyUsagePurpose::DigitalSignature,
                KeyUsagePurpose::KeyEncipherment,
                KeyUsagePurpose::KeyCertSign,
            ];
            let signed = params.self_signed(&made).map_err(io::Error::other)?;
            tls.write(&certificate, &signed.pem())?;
            tls.write(&key, &sec1::write(&made)?)?;
        }
        let key = sec1::read(&tls.read(&key)?)?;
        let issuer = Issuer::from_ca_cert_pem(&tls.read(&certificate)?, key).map_err(io::Error::other)?;
        Ok(Self { issuer, is_client: file != "server-ca" })
    }

    fn leaf(
        &self,
        tls: &Dir,
        file: &str,
        name: &str,
        group: Option<&str>,
        names: &[&str],
        now: OffsetDateTime,
    ) -> io::Result<()> {
        let (certificate, key) = (format!("{file}.crt"), format!("{file}.key"));
        if tls.has(&certificate) && tls.has(&key) {
            return Ok(());
        }
        let made = KeyPair::generate().map_err(io::Error::other)?;
        let mut params = params(name, group, now, LIFETIME);
        params.extended_key_usages = vec![if self.is_client {
            ExtendedKeyUsagePurpose::ClientAuth
        } else {
            ExtendedKeyUsagePurpose::ServerAuth
        }];
        for name in names {
            params.subject_alt_names.push(match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName((*name).try_into().map_err(io::Error::other)?),
            });
        }
        let signed = params.signed_by(&made, &self.issuer).map_err(io::Error::other)?;
        tls.write(&key, &sec1::write(&made)?)?;
        tls.write(&certificate, &signed.pem())
    }
}

fn params(name: &str, group: Option<&str>, now: OffsetDateTime, lifetime: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    if let Some(group) = group {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.not_before = now - BACKDATE;
    params.not_after = now + lifetime;
    params
}
