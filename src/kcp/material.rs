//! The five files that make two processes one kcp: certificate and key, the key that signs ServiceAccount tokens, the
//! hash of the shard-admin token, and the kubeconfig that holds the token itself (K4).
//!
//! A set is read whole and checked the way kcp would, so that a bad one is refused by file name before anything is
//! spawned. Nothing here writes.

use crate::files::{self, FileError};
use crate::kcp::kubeconfig::{self, KubeconfigProblem, Token};
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::{Path, PathBuf};
use time::OffsetDateTime;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::rustls::sign::{CertifiedKey, SigningKey};

pub(crate) const CERTIFICATE: &str = "apiserver.crt";
pub(crate) const KEY: &str = "apiserver.key";
pub(crate) const SERVICE_ACCOUNT_KEY: &str = "sa.key";
pub(crate) const TOKEN_STORE: &str = ".admin-token-store";
pub(crate) const KUBECONFIG: &str = "admin.kubeconfig";

/// The names of the set, in the order kcp writes them.
pub const FILES: [&str; 5] = [SERVICE_ACCOUNT_KEY, CERTIFICATE, KEY, TOKEN_STORE, KUBECONFIG];

/// A complete set whose parts belong together.
#[derive(Clone)]
pub struct Material {
    certificate: Vec<u8>,
    key: Vec<u8>,
    service_account_key: Vec<u8>,
    token_store: Vec<u8>,
    kubeconfig: Vec<u8>,
    token: Token,
    trusted: Option<Vec<u8>>,
}

/// Which file of a set is bad, and why.
#[derive(Debug, thiserror::Error)]
pub enum MaterialError {
    #[error(
        "{path} {problem}; put back the whole set of five files from a backup or from the root of a slot that served with it"
    )]
    Bad { path: PathBuf, problem: Problem },
    #[error(transparent)]
    Unreadable(#[from] FileError),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("is missing")]
    Missing,
    #[error("holds no PEM certificate")]
    NoCertificate,
    #[error("holds no private key that can be used")]
    NoKey,
    #[error("is not the key of apiserver.crt")]
    OtherKey,
    #[error("is not the SHA-256 of the shard-admin token in admin.kubeconfig")]
    OtherToken,
    #[error("{0}")]
    Kubeconfig(#[from] KubeconfigProblem),
}

impl Material {
    /// Reads the set in `dir` and checks it. Blocking.
    pub fn read(dir: &Path) -> Result<Self, MaterialError> {
        let bad = |name: &str, problem| MaterialError::Bad { path: dir.join(name), problem };
        let file = |name: &str| files::read_optional(&dir.join(name))?.ok_or(bad(name, Problem::Missing));
        let certificate = file(CERTIFICATE)?;
        let key = file(KEY)?;
        let service_account_key = file(SERVICE_ACCOUNT_KEY)?;
        let token_store = file(TOKEN_STORE)?;
        let kubeconfig = file(KUBECONFIG)?;

        let chain: Vec<_> = CertificateDer::pem_slice_iter(&certificate)
            .collect::<Result<_, _>>()
            .map_err(|_| bad(CERTIFICATE, Problem::NoCertificate))?;
        if chain.is_empty() {
            return Err(bad(CERTIFICATE, Problem::NoCertificate));
        }
        let signing = private_key(&key).ok_or(bad(KEY, Problem::NoKey))?;
        if CertifiedKey::new(chain, signing).keys_match().is_err() {
            return Err(bad(KEY, Problem::OtherKey));
        }
        private_key(&service_account_key).ok_or(bad(SERVICE_ACCOUNT_KEY, Problem::NoKey))?;
        let token = kubeconfig::shard_admin_token(&kubeconfig)
            .map_err(|problem| bad(KUBECONFIG, Problem::Kubeconfig(problem)))?;
        if token_store != Sha256::digest(token.expose()).as_slice() {
            return Err(bad(TOKEN_STORE, Problem::OtherToken));
        }
        Ok(Self { certificate, key, service_account_key, token_store, kubeconfig, token, trusted: None })
    }

    /// Leaf and CA, PEM: what the slots serve with, and what their clients trust.
    pub fn certificate(&self) -> &[u8] {
        &self.certificate
    }

    /// When the leaf ends.
    pub(crate) fn expires(&self) -> Option<OffsetDateTime> {
        expiry_of(&self.certificate)
    }

    /// The same set, for requests to slots whose certificates may be any of these.
    #[must_use]
    pub(crate) fn trusting(self, bundle: Vec<u8>) -> Self {
        Self { trusted: Some(bundle), ..self }
    }

    /// What a client of this kcp has to trust, PEM.
    pub(crate) fn trusted(&self) -> &[u8] {
        self.trusted.as_deref().unwrap_or(&self.certificate)
    }

    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Every file with its name.
    pub(crate) fn files(&self) -> [(&'static str, &[u8]); 5] {
        [
            (SERVICE_ACCOUNT_KEY, &self.service_account_key),
            (CERTIFICATE, &self.certificate),
            (KEY, &self.key),
            (TOKEN_STORE, &self.token_store),
            (KUBECONFIG, &self.kubeconfig),
        ]
    }

    /// Whether both sets make the same kcp. admin.kubeconfig is left out: each start rewrites it around the same token.
    pub(crate) fn same_kcp(&self, other: &Self) -> bool {
        self.certificate == other.certificate
            && self.key == other.key
            && self.service_account_key == other.service_account_key
            && self.token_store == other.token_store
    }
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Material").finish_non_exhaustive()
    }
}

/// When the first certificate of a PEM file ends.
pub(crate) fn expiry_of(pem: &[u8]) -> Option<OffsetDateTime> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem).ok()?;
    Some(pem.parse_x509().ok()?.validity().not_after.to_datetime())
}

/// From when until when, of each certificate of a PEM file in its order.
pub(crate) fn validities_of(pem: &[u8]) -> Vec<(OffsetDateTime, OffsetDateTime)> {
    let of_block = |block: x509_parser::pem::Pem| {
        let validity = block.parse_x509().ok()?.validity().clone();
        Some((validity.not_before.to_datetime(), validity.not_after.to_datetime()))
    };
    x509_parser::pem::Pem::iter_from_buffer(pem).filter_map(|block| of_block(block.ok()?)).collect()
}

fn private_key(pem: &[u8]) -> Option<std::sync::Arc<dyn SigningKey>> {
    let key = PrivateKeyDer::from_pem_slice(pem).ok()?;
    ring::sign::any_supported_type(&key).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kcp::fixture::Fixture;

    /// What is done to a good set, and the file and words the refusal must name.
    type Row = (&'static str, fn(&Path, &Fixture), &'static str, &'static str);

    fn write(dir: &Path, name: &str, bytes: &[u8]) {
        files::write_atomic(&dir.join(name), bytes, None).unwrap();
    }
    fn remove(dir: &Path, name: &str) {
        std::fs::remove_file(dir.join(name)).unwrap();
    }

    const REFUSALS: &[Row] = &[
        ("no kubeconfig", |dir, _| remove(dir, KUBECONFIG), KUBECONFIG, "is missing"),
        ("no store", |dir, _| remove(dir, TOKEN_STORE), TOKEN_STORE, "is missing"),
        ("no certificate", |dir, _| remove(dir, CERTIFICATE), CERTIFICATE, "is missing"),
        ("no key", |dir, _| remove(dir, KEY), KEY, "is missing"),
        ("no sa.key", |dir, _| remove(dir, SERVICE_ACCOUNT_KEY), SERVICE_ACCOUNT_KEY, "is missing"),
        ("empty kubeconfig", |dir, _| write(dir, KUBECONFIG, b""), KUBECONFIG, "is empty"),
        (
            "kubeconfig that is not yaml",
            |dir, _| write(dir, KUBECONFIG, b"{[ 9f86d081"),
            KUBECONFIG,
            "is not a kubeconfig",
        ),
        (
            "half a kubeconfig",
            |dir, set| write(dir, KUBECONFIG, &set.kubeconfig[..set.kubeconfig.len() / 2]),
            KUBECONFIG,
            "",
        ),
        (
            "kubeconfig of another kcp",
            |dir, _| write(dir, KUBECONFIG, &Fixture::new().kubeconfig),
            TOKEN_STORE,
            "is not the SHA-256",
        ),
        ("empty store", |dir, _| write(dir, TOKEN_STORE, b""), TOKEN_STORE, "is not the SHA-256"),
        (
            "store in hex",
            |dir, set| write(dir, TOKEN_STORE, hex::encode(&set.token_store).as_bytes()),
            TOKEN_STORE,
            "is not the SHA-256",
        ),
        ("key of another pair", |dir, _| write(dir, KEY, &Fixture::new().key), KEY, "is not the key of"),
        ("junk key", |dir, _| write(dir, KEY, b"junk"), KEY, "holds no private key"),
        ("junk certificate", |dir, _| write(dir, CERTIFICATE, b"junk"), CERTIFICATE, "holds no PEM"),
        (
            "junk sa.key",
            |dir, _| write(dir, SERVICE_ACCOUNT_KEY, b"junk"),
            SERVICE_ACCOUNT_KEY,
            "holds no private key",
        ),
    ];

    #[test]
    fn a_bad_set_is_refused_by_the_name_of_its_file_and_without_a_secret() {
        for (case, damage, file, words) in REFUSALS {
            let dir = tempfile::tempdir().unwrap();
            let set = Fixture::new();
            set.write(dir.path());
            damage(dir.path(), &set);
            let error = Material::read(dir.path()).expect_err(case).to_string();
            assert!(error.contains(&format!("{}/{file} {words}", dir.path().display())), "{case}: {error}");
            assert!(!error.contains(&set.shard_admin) && !error.contains("9f86d081"), "{case}: {error}");
            assert!(!error.contains('\n'), "{case}: {error}");
        }
    }

    #[test]
    fn a_whole_set_is_accepted_and_its_debug_form_is_bare() {
        let dir = tempfile::tempdir().unwrap();
        let set = Fixture::new();
        set.write(dir.path());
        let material = Material::read(dir.path()).unwrap();
        assert_eq!(material.token().expose(), set.shard_admin);
        assert_eq!(format!("{material:?}"), "Material { .. }");
    }
}
