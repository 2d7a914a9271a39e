//! Keys and certificates: the self-signed pair kcp leaves in its root, its ServiceAccount key, and the private PKI
//! between this front and its backend. Nothing here writes a file.
//!
//! A real kcp makes RSA keys; these are EC P-256, which needs no library more. Existing RSA files are accepted.

use base64::{Engine, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use std::net::{IpAddr, Ipv4Addr};
use time::{Duration, OffsetDateTime};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, pem::PemObject};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// kcp backdates by an hour so that a host whose clock is a little behind accepts it at once.
const BACKDATE: Duration = Duration::hours(1);
/// kcp never renews it: an operator has to.
const LIFETIME: Duration = Duration::days(365);

/// A certificate chain and its key, PEM.
#[derive(Debug, Clone)]
pub(super) struct Pair {
    pub chain: String,
    pub key: String,
}

/// What `apiserver.crt` (leaf and its CA) and `apiserver.key` hold. Valid for 127.0.0.1 and nothing else.
pub(super) fn serving(now: OffsetDateTime) -> Result<Pair, rcgen::Error> {
    let subject = |what: &str| format!("127.0.0.1{what}@{}", now.unix_timestamp());
    let (ca_pem, issuer) = authority(&subject("-ca"), now)?;
    let mut leaf = params(&subject(""), now);
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    // The address is in there as a DNS name too, as kcp does it: a strict client has to live with that.
    leaf.subject_alt_names = vec![SanType::DnsName("127.0.0.1".try_into()?), SanType::IpAddress(LOOPBACK)];
    let key = KeyPair::generate()?;
    let leaf = leaf.signed_by(&key, &issuer)?;
    Ok(Pair { chain: format!("{}{ca_pem}", leaf.pem()), key: key.serialize_pem() })
}

/// What `sa.key` holds.
pub(super) fn service_account_key() -> Result<String, rcgen::Error> {
    Ok(KeyPair::generate()?.serialize_pem())
}

/// The public half of `sa.key`, whatever kind of key it is: the backend does not derive it from every kind.
pub(super) fn public_half(private: &[u8]) -> Result<String, String> {
    let key = PrivateKeyDer::from_pem_slice(private).map_err(|error| error.to_string())?;
    let key = ring::sign::any_supported_type(&key).map_err(|error| error.to_string())?;
    let public = key.public_key().ok_or("this kind of key does not tell its public half")?;
    let text = STANDARD.encode(&public);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| str::from_utf8(line).ok()).collect();
    Ok(format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", lines.join("\n")))
}

/// The private PKI of one life of the process: one CA, the backend's serving pair, the front's client pair.
#[derive(Debug)]
pub(super) struct BackendPki {
    pub ca: String,
    pub server: Pair,
    pub client: Pair,
}

impl BackendPki {
    /// The name the backend believes when it vouches for a user in a header.
    pub(super) const FRONT: &str = "kcp-stand-in-front";

    pub(super) fn generate(now: OffsetDateTime) -> Result<Self, rcgen::Error> {
        let (ca, issuer) = authority("kcp-stand-in-backend-ca", now)?;
        let issue = |name: &str, usage: ExtendedKeyUsagePurpose| {
            let mut leaf = params(name, now);
            leaf.extended_key_usages = vec![usage];
            leaf.subject_alt_names = vec![SanType::IpAddress(LOOPBACK)];
            let key = KeyPair::generate()?;
            Ok::<_, rcgen::Error>(Pair {
                chain: leaf.signed_by(&key, &issuer)?.pem(),
                key: key.serialize_pem(),
            })
        };
        let server = issue("kube-apiserver", ExtendedKeyUsagePurpose::ServerAuth)?;
        let client = issue(Self::FRONT, ExtendedKeyUsagePurpose::ClientAuth)?;
        Ok(Self { ca, server, client })
    }
}

fn authority(name: &str, now: OffsetDateTime) -> Result<(String, Issuer<'static, KeyPair>), rcgen::Error> {
    let mut ca = params(name, now);
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
        KeyUsagePurpose::KeyCertSign,
    ];
    let key = KeyPair::generate()?;
    let pem = ca.self_signed(&key)?.pem();
    Ok((pem, Issuer::new(ca, key)))
}

fn params(name: &str, now: OffsetDateTime) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = now - BACKDATE;
    params.not_after = now + LIFETIME;
    params
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_rustls::rustls::pki_types::CertificateDer;
    use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

    #[test]
    fn the_public_half_is_the_pairs_own() {
        let key = KeyPair::generate().unwrap();
        let public = public_half(key.serialize_pem().as_bytes()).unwrap();
        assert_eq!(public, key.public_key_pem().replace("\r\n", "\n"));
    }

    #[test]
    fn the_serving_chain_is_leaf_and_ca_for_127_0_0_1_and_a_year() {
        let now = OffsetDateTime::from_unix_timestamp(1_796_000_000).unwrap();
        let pair = serving(now).unwrap();
        let ders: Vec<_> =
            CertificateDer::pem_slice_iter(pair.chain.as_bytes()).map(Result::unwrap).collect();
        assert_eq!(ders.len(), 2);
        let leaf = X509Certificate::from_der(&ders[0]).unwrap().1;
        let ca = X509Certificate::from_der(&ders[1]).unwrap().1;
        assert_eq!(leaf.subject().to_string(), "CN=127.0.0.1@1796000000");
        assert_eq!(leaf.issuer().to_string(), "CN=127.0.0.1-ca@1796000000");
        assert!(ca.is_ca() && !leaf.is_ca());
        leaf.verify_signature(Some(ca.public_key())).unwrap();
        assert_eq!(leaf.validity().not_before.timestamp(), 1_796_000_000 - 3600);
        assert_eq!(leaf.validity().not_after.timestamp(), 1_796_000_000 + 365 * 86_400);
        let names = leaf.subject_alternative_name().unwrap().unwrap().value.general_names.clone();
        assert_eq!(names, [GeneralName::DNSName("127.0.0.1"), GeneralName::IPAddress(&[127, 0, 0, 1])]);
    }
}
