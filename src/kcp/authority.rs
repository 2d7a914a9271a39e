//! Berth's own certificate authority for kcp, from the first rotation on.
//!
//! The authority that kcp signs its first certificate with is thrown away at once, so that certificate cannot be renewed, only
//! replaced, and every client has to learn of it. With an authority that is kept, that happens once. Its key never leaves
//! `<state>/kcp/ca`, which no component's account can read.

use crate::files::{self, FileError};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose,
};
use std::path::{Path, PathBuf};
use time::{Duration, OffsetDateTime};

/// As kcp's own: a clock that is a little behind accepts it at once.
const BACKDATE: Duration = Duration::hours(1);
/// As kcp's own.
const LEAF: Duration = Duration::days(365);
/// Clients learn of it once; whoever runs this for ten years has rotated it by then.
const AUTHORITY: Duration = Duration::days(3650);
/// kcp's clients reach it through the front, on this host.
const NAMES: [&str; 3] = ["127.0.0.1", "::1", "localhost"];

#[derive(Debug, thiserror::Error)]
pub(crate) enum AuthorityError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error(
        "the certificate authority in {dir} cannot be used: {reason}; restore it from a backup, or move it away"
    )]
    Unusable { dir: PathBuf, reason: String },
}

/// Certificate chain and key, PEM.
#[derive(Clone)]
pub(crate) struct Pair {
    pub chain: String,
    pub key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

pub(crate) fn certificate(dir: &Path) -> PathBuf {
    dir.join("ca.crt")
}

fn key(dir: &Path) -> PathBuf {
    dir.join("ca.key")
}

/// Makes the authority where there is none; whether there was one. Blocking.
pub(crate) fn prepare(dir: &Path, now: OffsetDateTime) -> Result<bool, AuthorityError> {
    if files::read_optional(&certificate(dir))?.is_some() {
        return Ok(true);
    }
    files::private_dir(dir, None)?;
    let unusable = |error: rcgen::Error| unusable(dir, error);
    let pair = KeyPair::generate().map_err(unusable)?;
    let mut ca = params("berth kcp ca", now, AUTHORITY);
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let signed = ca.self_signed(&pair).map_err(unusable)?;
    // The certificate last: it says that there is an authority.
    files::write_atomic(&key(dir), pair.serialize_pem().as_bytes(), None)?;
    files::write_atomic(&certificate(dir), signed.pem().as_bytes(), None)?;
    Ok(false)
}

/// A new serving pair: leaf and authority in one file, as kcp keeps them. Blocking.
pub(crate) fn issue(dir: &Path, now: OffsetDateTime) -> Result<Pair, AuthorityError> {
    let read = |path: PathBuf| {
        let bytes = files::read_optional(&path)?
            .ok_or_else(|| unusable(dir, format!("{} is missing", path.display())))?;
        String::from_utf8(bytes).map_err(|_| unusable(dir, format!("{} is no text", path.display())))
    };
    let (ca, ca_key) = (read(certificate(dir))?, read(key(dir))?);
    let unusable = |error: rcgen::Error| unusable(dir, error);
    let issuer =
        Issuer::from_ca_cert_pem(&ca, KeyPair::from_pem(&ca_key).map_err(unusable)?).map_err(unusable)?;
    let mut leaf = params("kcp", now, LEAF);
    leaf.subject_alt_names =
        NAMES.into_iter().map(name).collect::<Result<_, rcgen::Error>>().map_err(unusable)?;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let pair = KeyPair::generate().map_err(unusable)?;
    let leaf = leaf.signed_by(&pair, &issuer).map_err(unusable)?;
    Ok(Pair { chain: format!("{}{ca}", leaf.pem()), key: pair.serialize_pem() })
}

fn name(name: &str) -> Result<rcgen::SanType, rcgen::Error> {
    Ok(match name.parse() {
        Ok(ip) => rcgen::SanType::IpAddress(ip),
        Err(_) => rcgen::SanType::DnsName(name.try_into()?),
    })
}

fn params(name: &str, now: OffsetDateTime, lifetime: Duration) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("{name}@{}", now.unix_timestamp()));
    params.not_before = now - BACKDATE;
    params.not_after = now + lifetime;
    params
}

fn unusable(dir: &Path, reason: impl std::fmt::Display) -> AuthorityError {
    AuthorityError::Unusable { dir: dir.to_owned(), reason: crate::one_line::one_line(reason) }
}
