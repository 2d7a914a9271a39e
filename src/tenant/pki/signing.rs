//! Keys and signatures: what every certificate of a tenant has in common.

use super::super::defaults::CLOCK_SKEW;
use super::{Pki, PkiError};
use crate::files::FileError;
use rand::TryRngCore;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose};
use std::path::Path;
use std::time::Duration;
use time::OffsetDateTime;

pub(super) fn params(
    common_name: &str,
    organizations: &[&str],
    now: OffsetDateTime,
    validity: Duration,
) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, common_name);
    for organization in organizations {
        params.distinguished_name.push(DnType::OrganizationName, *organization);
    }
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + validity;
    params
}

pub(super) fn issue(
    pki: &Pki,
    ca: &str,
    mut params: CertificateParams,
    usage: ExtendedKeyUsagePurpose,
    key: &KeyPair,
) -> Result<String, PkiError> {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    let path = pki.certificate(ca);
    let issuer = Issuer::from_ca_cert_pem(&read(&path)?, load_key(&pki.key(ca))?)
        .map_err(|e| PkiError::Unusable { path, reason: e.to_string() })?;
    Ok(params.signed_by(key, &issuer).map_err(make(ca))?.pem())
}

pub(super) fn generate(what: &str) -> Result<KeyPair, PkiError> {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(make(what))
}

pub(super) fn make(what: &str) -> impl Fn(rcgen::Error) -> PkiError + '_ {
    move |error| PkiError::Make { what: what.to_owned(), reason: error.to_string() }
}

pub(super) fn load_key(path: &Path) -> Result<KeyPair, PkiError> {
    KeyPair::from_pem(&read(path)?)
        .map_err(|e| PkiError::Unusable { path: path.to_owned(), reason: e.to_string() })
}

pub(super) fn read(path: &Path) -> Result<String, PkiError> {
    let failed = |source| FileError { action: "read", path: path.to_owned(), source };
    Ok(std::fs::read_to_string(path).map_err(failed)?)
}

/// 32 bytes from the kernel.
pub(in super::super) fn random_key() -> Result<[u8; 32], PkiError> {
    let mut key = [0; 32];
    rand::rngs::OsRng
        .try_fill_bytes(&mut key)
        .map_err(|e| PkiError::Make { what: "random key".to_owned(), reason: e.to_string() })?;
    Ok(key)
}
