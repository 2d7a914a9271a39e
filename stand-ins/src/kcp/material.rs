//! The five files in the root: which sets are refused, in kcp's words, and what is written when.
//!
//! The checks are pure and in two halves, because kcp dies of bad keys before its socket exists and of bad tokens
//! after. Nothing is written by a refused start.

use super::certificate::{self, Pair};
use super::kubeconfig;
use sha2::{Digest, Sha256};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio_rustls::rustls::sign::CertifiedKey;

const CERTIFICATE: &str = "apiserver.crt";
const KEY: &str = "apiserver.key";
pub(super) const SERVICE_ACCOUNT_KEY: &str = "sa.key";
const TOKEN_STORE: &str = ".admin-token-store";
const KUBECONFIG: &str = "admin.kubeconfig";

/// The files as they were found; `None` for one that is not there.
#[derive(Debug, Default, Clone)]
pub(super) struct Found {
    service_account_key: Option<Vec<u8>>,
    certificate: Option<Vec<u8>>,
    key: Option<Vec<u8>>,
    token_store: Option<Vec<u8>>,
    kubeconfig: Option<Vec<u8>>,
}

/// Who may enter. kcp-admin is new with every process; shard-admin lives as long as the files.
#[derive(Clone)]
pub(super) struct Tokens {
    pub kcp_admin: String,
    pub shard_admin: String,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tokens")
    }
}

impl Found {
    /// Creates the root where it is missing. Blocking.
    pub(super) fn read(root: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        let read = |name: &str| match crate::own_files::bytes(root.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        };
        Ok(Self {
            service_account_key: read(SERVICE_ACCOUNT_KEY)?,
            certificate: read(CERTIFICATE)?,
            key: read(KEY)?,
            token_store: read(TOKEN_STORE)?,
            kubeconfig: read(KUBECONFIG)?,
        })
    }

    /// What kcp looks at before it listens.
    pub(super) fn check_keys(&self, root: &Path) -> Result<(), String> {
        let unpaired = |missing: &str| {
            format!(
                "error creating self-signed certificates: error reading {}, certificate and key must be supplied as a pair",
                root.join(missing).display()
            )
        };
        match (&self.certificate, &self.key) {
            (Some(_), None) => return Err(unpaired(KEY)),
            (None, Some(_)) => return Err(unpaired(CERTIFICATE)),
            (Some(certificate), Some(key)) => check_pair(certificate, key)?,
            (None, None) => {}
        }
        if let Some(key) = &self.service_account_key {
            let usable = PrivateKeyDer::from_pem_slice(key)
                .is_ok_and(|key| ring::sign::any_supported_type(&key).is_ok());
            if !usable {
                return Err(format!(
                    "failed to parse service-account-issuer-key-file: error reading private key file {}: \
                     data does not contain a valid RSA or ECDSA private key",
                    root.join(SERVICE_ACCOUNT_KEY).display()
                ));
            }
        }
        Ok(())
    }

    /// What kcp looks at once it listens. Without a store, shard-admin is made anew.
    pub(super) fn tokens(&self, root: &Path) -> Result<Tokens, String> {
        let kcp_admin = uuid::Uuid::new_v4().to_string();
        let Some(store) = &self.token_store else {
            return Ok(Tokens { kcp_admin, shard_admin: uuid::Uuid::new_v4().to_string() });
        };
        let shard_admin = match &self.kubeconfig {
            Some(file) => kubeconfig::shard_admin_token(file)?,
            None => String::new(),
        };
        if shard_admin.is_empty() {
            return Err(
                "cannot create the 'admin.kubeconfig' file with an empty token for the shard-admin user"
                    .to_owned(),
            );
        }
        if Sha256::digest(&shard_admin).as_slice() != store.as_slice() {
            return Err(format!(
                "admin token in file \"{}\" is not valid anymore. Remove file \"{}\" and restart kcp",
                root.join(KUBECONFIG).display(),
                root.join(TOKEN_STORE).display()
            ));
        }
        Ok(Tokens { kcp_admin, shard_admin })
    }

    /// First file after the socket; kept when it exists. Blocking.
    pub(super) fn write_service_account_key(&self, root: &Path) -> io::Result<()> {
        if self.service_account_key.is_some() {
            return Ok(());
        }
        let key = certificate::service_account_key().map_err(io::Error::other)?;
        create(&root.join(SERVICE_ACCOUNT_KEY), 0o600, key.as_bytes())
    }

    /// Second and third; kept when they exist. Blocking.
    pub(super) fn write_serving_pair(&self, root: &Path) -> io::Result<Pair> {
        if let (Some(chain), Some(key)) = (&self.certificate, &self.key) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            return Ok(Pair { chain: text(chain), key: text(key) });
        }
        let pair = certificate::serving(crate::clock::now()).map_err(io::Error::other)?;
        create(&root.join(CERTIFICATE), 0o644, pair.chain.as_bytes())?;
        create(&root.join(KEY), 0o600, pair.key.as_bytes())?;
        Ok(pair)
    }

    /// Fourth, kept when it exists, and fifth, rewritten in place at every start. Blocking.
    pub(super) fn write_tokens(
        &self,
        root: &Path,
        tokens: &Tokens,
        base_url: &str,
        serving: &Pair,
    ) -> io::Result<()> {
        if self.token_store.is_none() {
            create(&root.join(TOKEN_STORE), 0o600, &Sha256::digest(&tokens.shard_admin))?;
        }
        let text =
            kubeconfig::render(base_url, serving.chain.as_bytes(), &tokens.kcp_admin, &tokens.shard_admin);
        create(&root.join(KUBECONFIG), 0o600, text.as_bytes())
    }
}

/// Writes in place, as kcp does: whoever copies these files has to expect a half one. Blocking.
pub(super) fn create(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    OpenOptions::new().create(true).write(true).truncate(true).mode(mode).open(path)?.write_all(bytes)
}

fn check_pair(certificate: &[u8], key: &[u8]) -> Result<(), String> {
    let chain: Vec<_> = CertificateDer::pem_slice_iter(certificate)
        .collect::<Result<_, _>>()
        .map_err(|_| "tls: failed to find any PEM data in certificate input".to_owned())?;
    if chain.is_empty() {
        return Err("tls: failed to find any PEM data in certificate input".to_owned());
    }
    let key = PrivateKeyDer::from_pem_slice(key)
        .map_err(|_| "tls: failed to find any PEM data in key input".to_owned())?;
    CertifiedKey::from_der(chain, key, &ring::default_provider())
        .map(drop)
        .map_err(|_| "tls: private key does not match public key".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "3f0b1a52-0000-4000-8000-000000000001";

    /// A set as a first start leaves it.
    fn whole() -> Found {
        let pair = certificate::serving(crate::clock::now()).unwrap();
        Found {
            service_account_key: Some(certificate::service_account_key().unwrap().into()),
            kubeconfig: Some(kubeconfig::render("https://h", pair.chain.as_bytes(), "k", TOKEN).into()),
            certificate: Some(pair.chain.into()),
            key: Some(pair.key.into()),
            token_store: Some(Sha256::digest(TOKEN).to_vec()),
        }
    }

    fn refusal(change: impl FnOnce(&mut Found)) -> (&'static str, String) {
        let mut found = whole();
        change(&mut found);
        let root = Path::new("/r");
        match (found.check_keys(root), found.tokens(root)) {
            (Err(error), _) => ("before listen", error),
            (Ok(()), Err(error)) => ("after listen", error),
            (Ok(()), Ok(_)) => ("started", String::new()),
        }
    }

    #[test]
    fn a_staged_set_starts_with_the_old_shard_admin_and_a_new_kcp_admin() {
        let (found, root) = (whole(), Path::new("/r"));
        found.check_keys(root).unwrap();
        let tokens = found.tokens(root).unwrap();
        assert_eq!(tokens.shard_admin, TOKEN);
        assert_ne!(tokens.kcp_admin, found.tokens(root).unwrap().kcp_admin);
    }

    #[test]
    fn every_inconsistent_set_is_refused_with_kcps_line_and_at_its_time() {
        let empty_token =
            "cannot create the 'admin.kubeconfig' file with an empty token for the shard-admin user";
        let stale_token = "admin token in file \"/r/admin.kubeconfig\" is not valid anymore. \
                           Remove file \"/r/.admin-token-store\" and restart kcp";
        let pair = "error creating self-signed certificates: error reading /r/";
        assert_eq!(refusal(|f| f.kubeconfig = None), ("after listen", empty_token.to_owned()));
        assert_eq!(refusal(|f| f.kubeconfig = Some(vec![])), ("after listen", empty_token.to_owned()));
        assert_eq!(refusal(|f| f.token_store = Some(vec![1; 32])), ("after listen", stale_token.to_owned()));
        assert_eq!(refusal(|f| f.token_store = Some(vec![])), ("after listen", stale_token.to_owned()));
        assert_eq!(
            refusal(|f| f.kubeconfig = Some(b"{not yaml".to_vec())),
            ("after listen", "yaml: line 1: did not find expected ',' or '}'".to_owned())
        );
        assert_eq!(
            refusal(|f| f.key = None),
            ("before listen", format!("{pair}apiserver.key, certificate and key must be supplied as a pair"))
        );
        assert_eq!(
            refusal(|f| f.certificate = None),
            ("before listen", format!("{pair}apiserver.crt, certificate and key must be supplied as a pair"))
        );
        assert_eq!(
            refusal(|f| f.key = whole().key),
            ("before listen", "tls: private key does not match public key".to_owned())
        );
        assert_eq!(
            refusal(|f| f.service_account_key = Some(b"junk".to_vec())),
            (
                "before listen",
                "failed to parse service-account-issuer-key-file: error reading private key file /r/sa.key: \
                 data does not contain a valid RSA or ECDSA private key"
                    .to_owned()
            )
        );
    }

    #[test]
    fn a_missing_store_or_service_account_key_is_made_anew() {
        assert_eq!(refusal(|f| f.service_account_key = None).0, "started");
        assert_eq!(refusal(|f| f.token_store = None).0, "started");
        let mut found = whole();
        found.token_store = None;
        assert_ne!(found.tokens(Path::new("/r")).unwrap().shard_admin, TOKEN);
    }
}
