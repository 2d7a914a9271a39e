//! When the certificate of the slots expires (K10): kcp signs it for 365 days and never renews it. Nobody asks yet.

use crate::kcp::defaults::CERTIFICATE_WARNING;
use crate::kcp::material::CERTIFICATE;
use std::path::{Path, PathBuf};
use time::OffsetDateTime;
use x509_parser::pem::Pem;

/// The end of a certificate chain's life: that of the certificate in it that expires first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    pub not_after: OffsetDateTime,
}

#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error(transparent)]
    File(#[from] crate::files::FileError),
    #[error("{0} holds no certificate: put back the whole set of five files it belongs to")]
    NoCertificate(PathBuf),
}

impl Expiry {
    /// Of the set in `dir`; `None` when there is no certificate yet. Blocking.
    pub fn of(dir: &Path) -> Result<Option<Self>, CertificateError> {
        let path = dir.join(CERTIFICATE);
        let Some(pem) = crate::files::read_optional(&path)? else { return Ok(None) };
        earliest(&pem).map(Some).ok_or(CertificateError::NoCertificate(path))
    }

    /// Whole days left; negative once it has expired.
    pub fn days_left(self, now: OffsetDateTime) -> i64 {
        (self.not_after - now).whole_seconds().div_euclid(24 * 60 * 60)
    }

    /// Whether an operator should plan the renewal now.
    pub fn is_near(self, now: OffsetDateTime) -> bool {
        self.not_after - now < CERTIFICATE_WARNING
    }
}

fn earliest(pem: &[u8]) -> Option<Expiry> {
    let mut ends = Vec::new();
    for block in Pem::iter_from_buffer(pem) {
        ends.push(block.ok()?.parse_x509().ok()?.validity().not_after.to_datetime());
    }
    ends.into_iter().min().map(|not_after| Expiry { not_after })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kcp::fixture::Fixture;
    use time::Duration;

    #[test]
    fn days_are_counted_down_and_a_month_ahead_is_near() {
        let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
        let set = Fixture::expiring(now + Duration::days(31));
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Expiry::of(dir.path()).unwrap(), None);
        set.write(dir.path());
        let expiry = Expiry::of(dir.path()).unwrap().unwrap();
        assert_eq!(expiry.not_after, set.not_after);
        assert_eq!((expiry.days_left(now), expiry.is_near(now)), (31, false));
        let later = now + Duration::days(2);
        assert_eq!((expiry.days_left(later), expiry.is_near(later)), (29, true));
        assert_eq!(expiry.days_left(now + Duration::days(31) + Duration::seconds(1)), -1);
    }

    #[test]
    fn a_file_without_a_certificate_is_named() {
        let dir = tempfile::tempdir().unwrap();
        crate::files::write_atomic(&dir.path().join(CERTIFICATE), b"junk", None).unwrap();
        assert!(
            Expiry::of(dir.path()).unwrap_err().to_string().contains("apiserver.crt holds no certificate")
        );
    }
}
