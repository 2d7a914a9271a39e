//! A tenant's keys and certificates: EC P-256 throughout, made once, all or nothing, owned by the tenant.
//!
//! The directory appears whole by one rename. Later calls check it, finish what a crash interrupted, and make leaves anew
//! whose last third has begun; authorities are never made twice. The keys that sign tokens or seal objects change only when
//! somebody says so: [`service_account`], [`encryption`]. All calls block.

pub(crate) mod certificate;
pub(crate) mod encryption;
mod leaf;
mod pair;
pub(crate) mod service_account;
mod signing;
mod turn;

pub(super) use signing::random_key;

use super::defaults::{CA_VALIDITY, LEAF_VALIDITY, RENEW_BEFORE};
use super::kubeconfig;
use super::seat::Failure;
use crate::files::{self, FileError};
use berth_actors::spec::User;
use certificate::Certificate;
pub(crate) use leaf::{LEAVES, Leaf, TakenUp};
use rcgen::{BasicConstraints, ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, SanType};
pub(crate) use signing::load_key;
use signing::{generate, issue, make, params};
use std::path::{Path, PathBuf};
use std::time::Duration;
use time::OffsetDateTime;

#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{path} is missing from the keys of cluster {cluster}: restore it from a backup")]
    Missing { cluster: String, path: PathBuf },
    #[error("{path} is not usable: {reason}")]
    Unusable { path: PathBuf, reason: String },
    #[error("cannot make the {what}: {reason}")]
    Make { what: String, reason: String },
}

impl Failure for PkiError {
    fn is_final(&self) -> bool {
        matches!(self, Self::Missing { .. } | Self::Unusable { .. })
    }
}

/// Which leaves to make anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    Due,
    All,
}

/// Its place in a tenant's data directory.
pub const DIR: &str = "pki";

pub(crate) const AUTHORITIES: [&str; 3] = ["server-ca", "client-ca", "front-proxy-ca"];

/// Signs and verifies ServiceAccount tokens.
const SERVICE_ACCOUNT_KEY: &str = "sa.key";
const SERVICE_ACCOUNT_PUBLIC: &str = "sa.pub";
/// The API server's encryption at rest. From the first start on: kine logs the value of a write that fails.
const ENCRYPTION: &str = "encryption.json";

/// The key directory of one cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pki {
    pub cluster: String,
    pub dir: PathBuf,
    pub owner: Option<User>,
}

impl Pki {
    /// Certificate of `name`: an authority or a leaf.
    pub fn certificate(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.crt"))
    }
    pub fn key(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.key"))
    }
    pub fn service_account_key(&self) -> PathBuf {
        self.dir.join(SERVICE_ACCOUNT_KEY)
    }
    pub fn service_account_public(&self) -> PathBuf {
        self.dir.join(SERVICE_ACCOUNT_PUBLIC)
    }
    pub fn encryption(&self) -> PathBuf {
        self.dir.join(ENCRYPTION)
    }

    /// Writes the kubeconfig of `leaf` to `path`, for the API server on `port` of this host. Blocking.
    pub(crate) fn kubeconfig(&self, path: &Path, leaf: &str, port: u16) -> Result<(), PkiError> {
        let access = kubeconfig::Files {
            cluster: &self.cluster,
            user: leaf,
            port,
            ca: &self.certificate("server-ca"),
            certificate: &self.certificate(leaf),
            key: &self.key(leaf),
        };
        Ok(kubeconfig::write(path, &access, self.owner)?)
    }

    /// Makes the directory if it is absent; else checks that nothing is missing and renews what runs out.
    pub fn ensure(&self) -> Result<(), PkiError> {
        turn::take(&self.dir, || {
            if !self.dir.exists() {
                return self.create();
            }
            self.recover()?;
            for path in self.all() {
                if !path.exists() {
                    return Err(PkiError::Missing { cluster: self.cluster.clone(), path });
                }
            }
            self.rotate_in_turn(Which::Due, crate::clock::now()).map(drop)
        })
    }

    /// Makes leaves anew, key and all; returns those it made.
    pub(crate) fn rotate(&self, which: Which, now: OffsetDateTime) -> Result<Vec<&'static Leaf>, PkiError> {
        turn::take(&self.dir, || {
            self.recover()?;
            self.rotate_in_turn(which, now)
        })
    }

    fn rotate_in_turn(&self, which: Which, now: OffsetDateTime) -> Result<Vec<&'static Leaf>, PkiError> {
        let mut made = Vec::new();
        for leaf in &LEAVES {
            if which == Which::All || self.is_due(leaf, now)? {
                self.renew(leaf, now)?;
                made.push(leaf);
            }
        }
        Ok(made)
    }

    /// Finishes what a daemon began that was killed over it.
    fn recover(&self) -> Result<(), PkiError> {
        LEAVES.iter().try_for_each(|leaf| self.finish(leaf.name))?;
        self.finish_service_account()
    }

    fn all(&self) -> impl Iterator<Item = PathBuf> {
        let pairs = AUTHORITIES.iter().copied().chain(LEAVES.iter().map(|leaf| leaf.name));
        pairs.flat_map(|name| [self.certificate(name), self.key(name)]).chain([
            self.service_account_key(),
            self.service_account_public(),
            self.encryption(),
        ])
    }

    /// Builds everything in a sibling directory and renames it: a crash leaves no half set.
    fn create(&self) -> Result<(), PkiError> {
        let aside = Self { dir: self.dir.with_extension("new"), ..self.clone() };
        files::remove_tree(&aside.dir)?;
        files::private_dir(&aside.dir, self.owner)?;
        let now = crate::clock::now();
        for name in AUTHORITIES {
            let common_name = format!("{} {name}", self.cluster);
            let key = generate(name)?;
            let mut params = params(&common_name, &[], now, CA_VALIDITY);
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
            let certificate = params.self_signed(&key).map_err(make(name))?;
            aside.write(&aside.certificate(name), certificate.pem().as_bytes())?;
            aside.write(&aside.key(name), key.serialize_pem().as_bytes())?;
        }
        for leaf in &LEAVES {
            let key = generate(leaf.name)?;
            aside.write(&aside.key(leaf.name), key.serialize_pem().as_bytes())?;
            aside.write(&aside.certificate(leaf.name), aside.sign(leaf, &key, now)?.as_bytes())?;
        }
        let tokens = generate(SERVICE_ACCOUNT_KEY)?;
        aside.write(&aside.service_account_key(), tokens.serialize_pem().as_bytes())?;
        aside.write(&aside.service_account_public(), tokens.public_key_pem().as_bytes())?;
        aside.write(&aside.encryption(), encryption::Keys::first(&random_key()?).text().as_bytes())?;
        Ok(files::rename(&aside.dir, &self.dir)?)
    }

    /// Does `work` while nobody makes a certificate or key in here anew: what it reads is of one generation. Blocking.
    pub(crate) fn hold_still<T>(&self, work: impl FnOnce() -> T) -> T {
        turn::take(&self.dir, work)
    }

    /// Its last third has begun, or the clock was wrong when it was made, or its key is another's.
    fn is_due(&self, leaf: &Leaf, now: OffsetDateTime) -> Result<bool, PkiError> {
        let path = self.certificate(leaf.name);
        let certificate = Certificate::parse(&files::read(&path)?, &path)?;
        let is_whole = load_key(&self.key(leaf.name)).is_ok_and(|key| certificate.is_of(&key));
        Ok(!is_whole || now < certificate.not_before || now >= certificate.not_after - RENEW_BEFORE)
    }

    fn renew(&self, leaf: &Leaf, now: OffsetDateTime) -> Result<(), PkiError> {
        let key = generate(leaf.name)?;
        self.replace(leaf.name, &self.sign(leaf, &key, now)?, &key.serialize_pem())
    }

    fn sign(&self, leaf: &Leaf, key: &KeyPair, now: OffsetDateTime) -> Result<String, PkiError> {
        let organizations: Vec<&str> = leaf.organization.into_iter().collect();
        let mut params = params(leaf.common_name, &organizations, now, LEAF_VALIDITY);
        for name in leaf.names {
            params.subject_alt_names.push(match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName((*name).try_into().map_err(make(leaf.name))?),
            });
        }
        let usage = if leaf.server {
            ExtendedKeyUsagePurpose::ServerAuth
        } else {
            ExtendedKeyUsagePurpose::ClientAuth
        };
        issue(&self.certificate(leaf.ca), &self.key(leaf.ca), params, usage, key)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), PkiError> {
        Ok(files::write_atomic(path, bytes, self.owner)?)
    }
}

/// Signs a client certificate with the authority in the PEM files `ca` and `ca_key`: no organization, so no group beyond
/// `system:authenticated`. The key is new and kept nowhere. Blocking.
///
/// Returns (certificate, key), both PEM.
pub fn sign_client(
    ca: &Path,
    ca_key: &Path,
    common_name: &str,
    now: OffsetDateTime,
    validity: Duration,
) -> Result<(String, String), PkiError> {
    let key = generate(common_name)?;
    let params = params(common_name, &[], now, validity);
    let pem = issue(ca, ca_key, params, ExtendedKeyUsagePurpose::ClientAuth, &key)?;
    Ok((pem, key.serialize_pem()))
}

#[cfg(test)]
mod faults;

#[cfg(test)]
mod tests {
    use super::super::defaults::CLOCK_SKEW;
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use x509_parser::prelude::FromDer;

    fn pki(dir: &tempfile::TempDir) -> Pki {
        Pki { cluster: "demo".to_owned(), dir: dir.path().join("pki"), owner: None }
    }

    fn subject_of(pem: &str) -> String {
        let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
        let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(&pem.contents).unwrap();
        certificate.subject().to_string()
    }

    #[test]
    fn the_set_is_whole_private_and_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let pki = pki(&dir);
        std::fs::create_dir(pki.dir.with_extension("new")).unwrap(); // what a crash leaves
        pki.ensure().unwrap();
        let before: Vec<_> = pki.all().map(|path| std::fs::read(path).unwrap()).collect();
        for path in pki.all() {
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{path:?}");
        }
        assert!(!pki.dir.with_extension("new").exists());
        pki.ensure().unwrap();
        assert_eq!(pki.all().map(|path| std::fs::read(path).unwrap()).collect::<Vec<_>>(), before);
    }

    #[test]
    fn a_missing_file_is_named_and_not_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let pki = pki(&dir);
        pki.ensure().unwrap();
        std::fs::remove_file(pki.encryption()).unwrap();
        let error = pki.ensure().unwrap_err().to_string();
        assert!(error.contains("encryption.json") && error.contains("demo"), "{error}");
        assert!(!pki.encryption().exists());
    }

    #[test]
    fn a_leaf_whose_last_third_has_begun_is_made_anew_with_another_key() {
        let dir = tempfile::tempdir().unwrap();
        let (pki, made) = (pki(&dir), crate::clock::now());
        pki.ensure().unwrap();
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
        let (certificate, key) = (read(pki.certificate("admin")), read(pki.key("admin")));
        let two_thirds = LEAF_VALIDITY * 2 / 3;
        assert!(pki.rotate(Which::Due, made + two_thirds - Duration::from_hours(1)).unwrap().is_empty());
        assert_eq!(read(pki.certificate("admin")), certificate);
        let anew = pki.rotate(Which::Due, made + two_thirds + Duration::from_hours(1)).unwrap();
        assert_eq!(anew.len(), LEAVES.len());
        assert_ne!(read(pki.certificate("admin")), certificate);
        assert_ne!(read(pki.key("admin")), key);
        assert!(is_whole(&pki));
    }

    #[test]
    fn a_leaf_whose_key_is_anothers_is_made_anew_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let pki = pki(&dir);
        pki.ensure().unwrap();
        pki.write(&pki.key("bao"), &std::fs::read(pki.key("admin")).unwrap()).unwrap();
        assert!(!is_whole(&pki));
        let made = pki.rotate(Which::Due, crate::clock::now()).unwrap();
        assert_eq!(made.iter().map(|leaf| leaf.name).collect::<Vec<_>>(), ["bao"]);
        assert!(is_whole(&pki));
    }

    #[test]
    fn nothing_is_made_anew_while_somebody_reads_the_set() {
        let dir = tempfile::tempdir().unwrap();
        let pki = pki(&dir);
        pki.ensure().unwrap();
        let (begun, has_begun) = std::sync::mpsc::channel();
        let rotating = pki.hold_still(|| {
            let (pki, before) = (pki.clone(), std::fs::read(pki.key("admin")).unwrap());
            let rotating = std::thread::spawn({
                let pki = pki.clone();
                move || {
                    begun.send(()).unwrap();
                    pki.rotate(Which::All, crate::clock::now()).unwrap().len()
                }
            });
            has_begun.recv().unwrap();
            assert_eq!(std::fs::read(pki.key("admin")).unwrap(), before);
            assert!(is_whole(&pki));
            rotating
        });
        assert_eq!(rotating.join().unwrap(), LEAVES.len());
    }

    /// Every pair fits and is signed by its authority.
    fn is_whole(pki: &Pki) -> bool {
        let certificate = |name: &str| {
            let path = pki.certificate(name);
            Certificate::parse(&std::fs::read(&path).unwrap(), &path).unwrap()
        };
        LEAVES.iter().all(|leaf| {
            let (own, authority) = (certificate(leaf.name), certificate(leaf.ca));
            own.is_of(&load_key(&pki.key(leaf.name)).unwrap())
                && own.is_signed_by(&authority)
                && !own.is_signed_by(&own)
        })
    }

    #[test]
    fn what_was_signed_while_the_clock_was_far_ahead_is_valid_once_it_is_right() {
        let dir = tempfile::tempdir().unwrap();
        let (pki, now) = (pki(&dir), crate::clock::now());
        pki.ensure().unwrap();
        let is_valid = |leaf: &Leaf| {
            let pem = std::fs::read(pki.certificate(leaf.name)).unwrap();
            let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).unwrap();
            let present = x509_parser::time::ASN1Time::from_timestamp(now.unix_timestamp()).unwrap();
            pem.parse_x509().unwrap().validity().is_valid_at(present)
        };
        for leaf in &LEAVES {
            let key = load_key(&pki.key(leaf.name)).unwrap();
            let sign = |at| {
                let pem = pki.sign(leaf, &key, at).unwrap();
                pki.write(&pki.certificate(leaf.name), pem.as_bytes()).unwrap();
            };
            sign(now + CLOCK_SKEW);
            assert!(is_valid(leaf), "{}", leaf.name);
            sign(now + CLOCK_SKEW * 2);
            assert!(!is_valid(leaf), "{}", leaf.name);
            assert_eq!(pki.rotate(Which::Due, now).unwrap().len(), 1);
            assert!(is_valid(leaf), "{}: signed anew", leaf.name);
        }
    }

    #[test]
    fn a_signed_client_bears_the_subject_asked_for_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let pki = pki(&dir);
        pki.ensure().unwrap();
        let (certificate, key) = sign_client(
            &pki.certificate("client-ca"),
            &pki.key("client-ca"),
            "socialweb:cloud-controller-manager",
            crate::clock::now(),
            LEAF_VALIDITY,
        )
        .unwrap();
        assert_eq!(subject_of(&certificate), "CN=socialweb:cloud-controller-manager");
        assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"));
        let admin = std::fs::read_to_string(pki.certificate("admin")).unwrap();
        assert_eq!(subject_of(&admin), "CN=admin, O=system:masters");
    }
}
