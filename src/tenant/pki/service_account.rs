//! The keys of ServiceAccount tokens: one signs, and those before it verify until a stated time.
//!
//! `sa.key` signs; `sa.pub` holds every key that verifies, the signing one first, and above each other one the time until
//! which it does. A change is first written to `sa.next`, whole: from then on it has happened, and whoever comes next
//! finishes it. kube-apiserver reads both files at its start only.

use super::signing::{generate, load_key};
use super::{Pki, PkiError, turn};
use crate::fault;
use crate::files;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use std::path::PathBuf;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio_rustls::rustls::pki_types::{SubjectPublicKeyInfoDer, pem::PemObject};

const UNTIL: &str = "# verifies until ";
const ENDS: &str = "-----END PUBLIC KEY-----";

/// A key that verifies tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verifier {
    /// PEM.
    public: String,
    /// `None`: it is the one that signs.
    pub(crate) until: Option<OffsetDateTime>,
}

impl Verifier {
    /// It is the public half of `key`.
    pub(crate) fn is_of(&self, key: &rcgen::KeyPair) -> bool {
        self.public.trim() == key.public_key_pem().trim()
    }

    /// As tokens and the API server's list of keys name it.
    pub(crate) fn id(&self) -> Option<String> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(self.public.as_bytes()).ok()?;
        Some(URL_SAFE_NO_PAD.encode(Sha256::digest(&der)))
    }
}

fn parse(text: &str) -> Result<Vec<Verifier>, String> {
    let mut verifiers = Vec::new();
    for block in text.split_inclusive(ENDS) {
        let Some(at) = block.find("-----BEGIN PUBLIC KEY-----") else { continue };
        let (above, public) = block.split_at(at);
        let until = match above.lines().find_map(|line| line.strip_prefix(UNTIL)) {
            Some(time) => {
                let time = OffsetDateTime::parse(time.trim(), &Rfc3339);
                Some(time.map_err(|error| error.to_string())?)
            }
            None => None,
        };
        verifiers.push(Verifier { public: format!("{}\n", public.trim()), until });
    }
    if verifiers.is_empty() { Err("it holds no public key".to_owned()) } else { Ok(verifiers) }
}

fn text(verifiers: &[Verifier]) -> String {
    let one = |Verifier { public, until }: &Verifier| match until.and_then(|time| time.format(&Rfc3339).ok())
    {
        Some(time) => format!("{UNTIL}{time}\n{public}"),
        None => public.clone(),
    };
    verifiers.iter().map(one).collect()
}

impl Pki {
    fn next_service_account(&self) -> PathBuf {
        self.dir.join("sa.next")
    }

    /// Every key that verifies, the signing one first.
    pub(crate) fn verifiers(&self) -> Result<Vec<Verifier>, PkiError> {
        let path = self.service_account_public();
        let read = String::from_utf8(files::read(&path)?).map_err(|error| error.to_string());
        read.and_then(|text| parse(&text)).map_err(|reason| PkiError::Unusable { path, reason })
    }

    /// A new key signs; the one that does now verifies until `until`. Durable before it returns.
    pub(crate) fn rotate_service_account(&self, until: OffsetDateTime) -> Result<(), PkiError> {
        turn::take(&self.dir, || {
            self.finish_service_account()?;
            let key = generate("sa.key")?;
            let until = until.format(&Rfc3339).unwrap_or_default();
            let order = format!("{UNTIL}{until}\n{}", key.serialize_pem());
            self.write(&self.next_service_account(), order.as_bytes())?;
            fault::point("signer-decided");
            self.finish_service_account()
        })
    }

    /// Takes those out whose time is over; says whether there were any.
    pub(crate) fn retire_verifiers(&self, now: OffsetDateTime) -> Result<bool, PkiError> {
        turn::take(&self.dir, || {
            let before = self.verifiers()?;
            let is_over = |verifier: &Verifier| verifier.until.is_some_and(|until| until <= now);
            let after: Vec<_> = before.iter().filter(|verifier| !is_over(verifier)).cloned().collect();
            if after.len() == before.len() || after.is_empty() {
                return Ok(false);
            }
            self.write(&self.service_account_public(), text(&after).as_bytes())?;
            Ok(true)
        })
    }

    pub(super) fn finish_service_account(&self) -> Result<(), PkiError> {
        let next = self.next_service_account();
        let Some(order) = files::read_optional(&next)? else { return Ok(()) };
        let unusable = |reason: String| PkiError::Unusable { path: next.clone(), reason };
        let order = String::from_utf8(order).map_err(|error| unusable(error.to_string()))?;
        let (first, private) = order.split_once('\n').unwrap_or_default();
        let until = first.strip_prefix(UNTIL).and_then(|time| OffsetDateTime::parse(time, &Rfc3339).ok());
        let until = until.ok_or_else(|| unusable("it does not begin with a time".to_owned()))?;
        let public = load_key(&next)?.public_key_pem();
        let mut verifiers = self.verifiers()?;
        if verifiers.first().is_none_or(|first| first.public.trim() != public.trim()) {
            for verifier in &mut verifiers {
                verifier.until = Some(verifier.until.map_or(until, |already| already.min(until)));
            }
            verifiers.insert(0, Verifier { public, until: None });
            self.write(&self.service_account_public(), text(&verifiers).as_bytes())?;
        }
        fault::point("signer-verifies");
        self.write(&self.service_account_key(), private.as_bytes())?;
        fault::point("signer-signs");
        files::remove(&next)?;
        Ok(files::sync_dir(&self.dir)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use time::Duration;

    fn made() -> (tempfile::TempDir, Pki) {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki { cluster: "demo".to_owned(), dir: dir.path().join("pki"), owner: None };
        pki.ensure().unwrap();
        (dir, pki)
    }

    #[test]
    fn a_new_key_signs_and_the_old_one_verifies_until_its_time() {
        let (_dir, pki) = made();
        let first = pki.verifiers().unwrap().remove(0);
        let end = (crate::clock::now() + Duration::days(1)).replace_nanosecond(0).unwrap();
        pki.rotate_service_account(end).unwrap();
        let after = pki.verifiers().unwrap();
        assert_eq!(after.len(), 2);
        assert_eq!(
            load_key(&pki.service_account_key()).unwrap().public_key_pem().trim(),
            after[0].public.trim()
        );
        assert_eq!((after[0].until, after[1].until), (None, Some(end)));
        assert_eq!(after[1].id(), first.id());

        assert!(!pki.retire_verifiers(end - Duration::SECOND).unwrap());
        assert!(pki.retire_verifiers(end).unwrap());
        assert_eq!(pki.verifiers().unwrap(), after[..1]);
        assert!(!pki.retire_verifiers(end + Duration::days(1000)).unwrap(), "the one that signs stays");
    }

    #[test]
    fn a_key_of_two_changes_ago_is_not_kept_longer_for_the_second() {
        let (_dir, pki) = made();
        let now = crate::clock::now().replace_nanosecond(0).unwrap();
        pki.rotate_service_account(now + Duration::days(5)).unwrap();
        pki.rotate_service_account(now + Duration::days(9)).unwrap();
        let ends: Vec<_> = pki.verifiers().unwrap().iter().map(|verifier| verifier.until).collect();
        assert_eq!(ends, [None, Some(now + Duration::days(9)), Some(now + Duration::days(5))]);
        pki.rotate_service_account(now).unwrap();
        let ends: Vec<_> = pki.verifiers().unwrap().iter().map(|verifier| verifier.until).collect();
        assert_eq!(ends, [None, Some(now), Some(now), Some(now)], "a leak ends all of them");
    }
}
