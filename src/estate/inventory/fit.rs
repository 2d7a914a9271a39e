//! Whether a certificate fits its authority and its key, how long it lasts, and who may read what must be kept.

use super::Look;
use crate::control::api::Credential;
use crate::files;
use crate::one_line::one_line;
use crate::tenant::pki::certificate::Certificate;
use crate::tenant::pki::load_key;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

impl Look {
    pub(super) fn credential(&self, path: &Path, purpose: &str, renewal: String) -> Credential {
        let file = path.strip_prefix(&self.data).unwrap_or(path).display().to_string();
        Credential { file, purpose: purpose.to_owned(), renewal, ..Credential::default() }
    }

    /// The certificate in `path`, its authority and its key. Returns its end.
    pub(super) fn judge(
        &self,
        credential: &mut Credential,
        path: &Path,
        authority: &Path,
        key: &Path,
        notice: Duration,
    ) -> Option<OffsetDateTime> {
        let read = files::read(path).map_err(one_line);
        let read = read.and_then(|pem| Certificate::parse(&pem, path).map_err(one_line));
        let certificate = read.map_err(|reason| credential.problems.push(reason)).ok()?;
        self.describe(credential, &certificate, notice);
        self.signed(credential, &certificate, authority);
        match load_key(key) {
            Ok(key) if certificate.is_of(&key) => {}
            Ok(_) => credential.problems.push(format!("{} is not its key", self.short(key))),
            Err(error) => credential.problems.push(one_line(error)),
        }
        self.guarded(credential, key);
        Some(certificate.not_after)
    }

    pub(super) fn describe(&self, credential: &mut Credential, certificate: &Certificate, notice: Duration) {
        let left = certificate.not_after - self.now;
        credential.subject = Some(certificate.subject.clone());
        credential.issuer = Some(certificate.issuer.clone());
        credential.not_after = certificate.not_after.format(&Rfc3339).ok();
        credential.left_seconds = Some(left.whole_seconds());
        let date = certificate.not_after.date();
        if left <= Duration::ZERO {
            credential.problems.push(format!("it has ended on {date}"));
        } else if left < notice {
            credential.problems.push(format!("it ends on {date}, in {} days", left.whole_days()));
        }
        if self.now < certificate.not_before {
            credential.problems.push(format!("it is not valid before {}", certificate.not_before.date()));
        }
    }

    pub(super) fn signed(&self, credential: &mut Credential, certificate: &Certificate, authority: &Path) {
        let read = files::read(authority).map_err(one_line);
        match read.and_then(|pem| Certificate::parse(&pem, authority).map_err(one_line)) {
            Ok(read) if certificate.is_signed_by(&read) => {}
            Ok(_) => credential.problems.push(format!("{} did not sign it", self.short(authority))),
            Err(reason) => credential.problems.push(reason),
        }
    }

    /// Nobody but its owner may read a key.
    pub(super) fn guarded(&self, credential: &mut Credential, path: &Path) {
        let Ok(metadata) = path.symlink_metadata() else { return };
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            credential
                .problems
                .push(format!("others may read {} (mode {mode:04o}): chmod 0600", self.short(path)));
        }
    }

    fn short(&self, path: &Path) -> String {
        path.strip_prefix(&self.data).unwrap_or(path).display().to_string()
    }
}
