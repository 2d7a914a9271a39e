//! Everything the verdict is made from, and how it is gathered: the file, the row, the keys, and the facts on this host.

use super::identity::{Owner, Record};
use crate::files::{FileError, read_optional};
use crate::tenant::credentials::AUTHORITIES;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};

/// What can be measured here and now, to be compared with what the records say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub system_identifier: String,
    /// Fingerprints of the CAs that exist.
    pub authorities: BTreeMap<String, String>,
    pub data_dir: PathBuf,
    pub data_dir_inode: u64,
    pub machine_id: Option<String>,
}

/// One look at everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Evidence {
    /// Who the daemon's own record says this tenant is.
    pub expected: Owner,
    /// F: `identity.json`.
    pub file: Option<Record>,
    /// R: the row in the tenant database.
    pub row: Option<Record>,
    /// K: the kine table holds keys of a Kubernetes.
    pub has_keys: bool,
    pub facts: Facts,
}

/// Something on disk could not be read. Never taken for "absent".
#[derive(Debug, thiserror::Error)]
pub(super) enum EvidenceError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("look at the data directory {path}: {source}")]
    DataDir {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} is not a record of the identity guard: {reason}")]
    NotARecord { path: PathBuf, reason: String },
    #[error("{path} is not a PEM certificate")]
    NotACertificate { path: PathBuf },
}

/// What the data directory and the host contribute.
#[derive(Debug)]
pub(super) struct OnDisk {
    pub(super) file: Option<Record>,
    pub(super) authorities: BTreeMap<String, String>,
    pub(super) data_dir: PathBuf,
    pub(super) data_dir_inode: u64,
    pub(super) machine_id: Option<String>,
}

pub(super) fn identity_file(data_dir: &Path) -> PathBuf {
    data_dir.join("identity.json")
}

/// Blocking.
pub(super) fn on_disk(data_dir: &Path, machine_id: &Path) -> Result<OnDisk, EvidenceError> {
    let failed = |source| EvidenceError::DataDir { path: data_dir.to_owned(), source };
    let real = fs::canonicalize(data_dir).map_err(failed)?;
    let data_dir_inode = fs::metadata(&real).map_err(failed)?.ino();
    let path = identity_file(&real);
    let file = match read_optional(&path)? {
        None => None,
        Some(bytes) => Some(parse(&bytes, &path)?),
    };
    let machine_id = read_optional(machine_id)?
        .map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
        // systemd writes this word before the first boot is complete.
        .filter(|id| !id.is_empty() && id != "uninitialized");
    Ok(OnDisk { file, authorities: authorities(&real)?, data_dir: real, data_dir_inode, machine_id })
}

/// The record in a file that is called `path`.
pub(super) fn parse(bytes: &[u8], path: &Path) -> Result<Record, EvidenceError> {
    Record::parse(bytes).map_err(|reason| EvidenceError::NotARecord { path: path.to_owned(), reason })
}

fn authorities(data_dir: &Path) -> Result<BTreeMap<String, String>, EvidenceError> {
    let mut found = BTreeMap::new();
    for (name, path) in AUTHORITIES {
        let path = data_dir.join(path);
        if let Some(pem) = read_optional(&path)? {
            let certificate = CertificateDer::from_pem_slice(&pem)
                .map_err(|_| EvidenceError::NotACertificate { path: path.clone() })?;
            found.insert(name.to_owned(), hex::encode(Sha256::digest(&certificate)));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(data_dir: &Path) -> Result<OnDisk, EvidenceError> {
        on_disk(data_dir, &data_dir.join("no-machine-id"))
    }

    #[test]
    fn a_torn_identity_file_is_an_error_and_never_absent() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(look(dir.path()).unwrap().file, None);
        for torn in ["", "{", "{\"cluster\":\"demo\"}", "[]"] {
            crate::files::write_atomic(&identity_file(dir.path()), torn.as_bytes(), None).unwrap();
            let error = look(dir.path()).unwrap_err().to_string();
            assert!(error.contains("identity.json"), "{error}");
        }
    }

    #[test]
    fn a_record_of_a_newer_berth_is_an_error_because_it_says_more_than_is_compared() {
        let dir = tempfile::tempdir().unwrap();
        let mut record = serde_json::json!({
            "owner": {"cluster": "demo", "uid": "u"}, "epoch": 1, "phase": "settled", "system_identifier": "7001",
            "authorities": {}, "data_dir": "/d", "data_dir_inode": 2, "machine_id": null,
        });
        let write = |record: &serde_json::Value| {
            crate::files::write_atomic(&identity_file(dir.path()), record.to_string().as_bytes(), None)
                .unwrap();
        };
        write(&record);
        assert_eq!(look(dir.path()).unwrap().file.unwrap().owner.cluster, "demo");
        record["fencing"] = 7.into();
        write(&record);
        assert!(look(dir.path()).unwrap_err().to_string().contains("fencing"));
    }

    #[test]
    fn an_authority_that_is_no_certificate_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("pki")).unwrap();
        crate::files::write_atomic(&dir.path().join("pki/client-ca.crt"), b"nonsense", None).unwrap();
        let error = look(dir.path()).unwrap_err().to_string();
        assert!(error.ends_with("client-ca.crt is not a PEM certificate"), "{error}");
    }
}
