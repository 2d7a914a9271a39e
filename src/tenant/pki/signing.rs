//! Keys and signatures: what every certificate of a tenant has in common.

use super::super::defaults::CLOCK_SKEW;
use super::PkiError;
use crate::files;
use pkcs8::{AlgorithmIdentifierRef, ObjectIdentifier, PrivateKeyInfo, SecretDocument};
use rand::TryRngCore;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose};
use std::path::Path;
use std::time::Duration;
use time::OffsetDateTime;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject};

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
    ca: &Path,
    ca_key: &Path,
    mut params: CertificateParams,
    usage: ExtendedKeyUsagePurpose,
    key: &KeyPair,
) -> Result<String, PkiError> {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    let issuer = Issuer::from_ca_cert_pem(&read(ca)?, load_key(ca_key)?)
        .map_err(|e| PkiError::Unusable { path: ca.to_owned(), reason: e.to_string() })?;
    Ok(params.signed_by(key, &issuer).map_err(make("certificate"))?.pem())
}

pub(super) fn generate(what: &str) -> Result<KeyPair, PkiError> {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(make(what))
}

pub(super) fn make(what: &str) -> impl Fn(rcgen::Error) -> PkiError + '_ {
    move |error| PkiError::Make { what: what.to_owned(), reason: error.to_string() }
}

/// A key of P-256: Berth's own are PKCS #8, those of k3s the older SEC 1, which ring does not read.
pub(crate) fn load_key(path: &Path) -> Result<KeyPair, PkiError> {
    let unusable = |reason: String| PkiError::Unusable { path: path.to_owned(), reason };
    let pem = read(path)?;
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|e| unusable(e.to_string()))?;
    let key = match &key {
        PrivateKeyDer::Sec1(key) => {
            let der = pkcs8_of(key.secret_sec1_der()).map_err(|e| unusable(e.to_string()))?;
            PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(der.as_bytes().to_vec()))
        }
        other => other.clone_key(),
    };
    KeyPair::try_from(&key).map_err(|e| unusable(e.to_string()))
}

fn pkcs8_of(sec1: &[u8]) -> Result<SecretDocument, pkcs8::Error> {
    const EC_PUBLIC_KEY: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
    const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
    let algorithm = AlgorithmIdentifierRef { oid: EC_PUBLIC_KEY, parameters: Some((&P256).into()) };
    PrivateKeyInfo::new(algorithm, sec1).try_into()
}

pub(super) fn read(path: &Path) -> Result<String, PkiError> {
    Ok(files::read_text(path)?)
}

/// 32 bytes from the kernel.
pub(in super::super) fn random_key() -> Result<[u8; 32], PkiError> {
    let mut key = [0; 32];
    rand::rngs::OsRng
        .try_fill_bytes(&mut key)
        .map_err(|e| PkiError::Make { what: "random key".to_owned(), reason: e.to_string() })?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::{Engine, engine::general_purpose::STANDARD};

    /// The same key in SEC 1 with the name of its curve, as k3s and openssl write it.
    fn sec1_pem(key: &KeyPair) -> String {
        const CURVE: [u8; 12] = *b"\xa0\x0a\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07";
        let pkcs8 = key.serialize_der();
        let mut sec1 = PrivateKeyInfo::try_from(pkcs8.as_slice()).unwrap().private_key.to_vec();
        // After the outer header, the version and the 32 bytes of the key; before its public half.
        sec1.splice(39..39, CURVE);
        sec1[1] += 12;
        let text = STANDARD.encode(sec1);
        format!("-----BEGIN EC PRIVATE KEY-----\n{text}\n-----END EC PRIVATE KEY-----\n")
    }

    #[test]
    fn a_key_as_k3s_writes_it_signs_like_any_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("client-ca.key");
        let made = generate("test").unwrap();
        crate::files::write_atomic(&path, sec1_pem(&made).as_bytes(), None).unwrap();
        let key = load_key(&path).unwrap();
        assert_eq!(key.public_key_pem(), made.public_key_pem());
        let now = crate::clock::now();
        let certificate = params("x", &[], now, Duration::from_hours(1)).self_signed(&key).unwrap();
        let (_, parsed) = x509_parser::parse_x509_certificate(certificate.der()).unwrap();
        parsed.verify_signature(None).unwrap();
    }
}
