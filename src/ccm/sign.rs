//! Signs one client certificate with a tenant's client CA.

use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
};
use std::time::Duration;
use time::OffsetDateTime;

/// A certificate minted now must also be valid on a clock that is a little behind.
const CLOCK_SKEW: Duration = Duration::from_mins(1);

/// A fresh P-256 key and a certificate for it: (certificate PEM, key PEM). No organization, so no group beyond
/// `system:authenticated`.
pub(super) fn sign_client(
    ca_certificate: &str,
    ca_key: &str,
    common_name: &str,
    now: OffsetDateTime,
    lifetime: Duration,
) -> Result<(String, String), rcgen::Error> {
    let issuer = Issuer::from_ca_cert_pem(ca_certificate, KeyPair::from_pem(ca_key)?)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + lifetime;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, &issuer)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// A throw-away certificate with any subject: (certificate PEM, key PEM).
#[cfg(test)]
pub(super) fn sign_client_for_test(common_name: &str, organization: Option<&str>) -> (String, String) {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    if let Some(organization) = organization {
        params.distinguished_name.push(DnType::OrganizationName, organization);
    }
    let key = KeyPair::generate().unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}
