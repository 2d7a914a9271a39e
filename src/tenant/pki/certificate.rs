//! What a certificate says of itself, and whether it fits its issuer and its key. Reads bytes, never a file.

use super::PkiError;
use rcgen::PublicKeyData;
use std::path::Path;
use time::OffsetDateTime;
use x509_parser::pem::parse_x509_pem;
use x509_parser::prelude::{FromDer, X509Certificate};

/// The first certificate of a PEM text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Certificate {
    der: Vec<u8>,
    pub(crate) subject: String,
    pub(crate) issuer: String,
    pub(crate) not_before: OffsetDateTime,
    pub(crate) not_after: OffsetDateTime,
}

impl Certificate {
    /// `path` is for the error.
    pub(crate) fn parse(pem: &[u8], path: &Path) -> Result<Self, PkiError> {
        let unusable = |reason: String| PkiError::Unusable { path: path.to_owned(), reason };
        let (_, pem) = parse_x509_pem(pem).map_err(|error| unusable(error.to_string()))?;
        let certificate = pem.parse_x509().map_err(|error| unusable(error.to_string()))?;
        let validity = certificate.validity();
        Ok(Self {
            subject: certificate.subject().to_string(),
            issuer: certificate.issuer().to_string(),
            not_before: validity.not_before.to_datetime(),
            not_after: validity.not_after.to_datetime(),
            der: pem.contents,
        })
    }

    pub(crate) fn der(&self) -> &[u8] {
        &self.der
    }

    /// Its issuer's name and signature are those of `authority`.
    pub(crate) fn is_signed_by(&self, authority: &Self) -> bool {
        let parsed = (X509Certificate::from_der(&self.der), X509Certificate::from_der(&authority.der));
        let (Ok((_, leaf)), Ok((_, authority))) = parsed else { return false };
        leaf.issuer() == authority.subject() && leaf.verify_signature(Some(authority.public_key())).is_ok()
    }

    /// `key` is the one whose public half is certified here.
    pub(crate) fn is_of(&self, key: &rcgen::KeyPair) -> bool {
        let public = X509Certificate::from_der(&self.der).map(|(_, leaf)| leaf.public_key().raw.to_vec());
        public.is_ok_and(|public| public == key.subject_public_key_info())
    }
}
