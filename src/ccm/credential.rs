//! The cloud controller manager's kubeconfig: minted by the daemon from the tenant's client CA, renewed in place.
//!
//! The blueprint calls [`renew`] before each start, a timer of the daemon at two thirds of its life. The running program
//! notices the new file by itself.

use super::access::ACCOUNT;
use super::renewal::Validity;
use crate::files::{FileError, read_optional, write_atomic};
use crate::tenant::credentials::Credentials;
use crate::tenant::pki::{PkiError, sign_client};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use berth_actors::spec::User;
use kube::config::Kubeconfig;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime, pem::PemObject};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use x509_parser::prelude::{FromDer, X509Certificate};

/// Short enough that a leaked one is soon worthless, long enough to outlive a holiday of the daemon.
const LIFETIME: Duration = Duration::from_hours(7 * 24);

#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    #[error(transparent)]
    File(#[from] FileError),
    #[error("{path} does not exist")]
    Missing { path: PathBuf },
    #[error(transparent)]
    Sign(#[from] PkiError),
    #[error("{path} is not the key of {certificate}: restore both from one backup", path = .path.display(), certificate = .certificate.display())]
    NotAPair { path: PathBuf, certificate: PathBuf },
}

/// What [`renew`] found or made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewed {
    /// A new credential was written.
    pub minted: bool,
    pub validity: Validity,
}

/// Makes sure that the credential of the tenant in `data_dir` names `server`, is signed by today's CA and has at least a
/// third of its life left. Blocking.
pub fn renew(
    data_dir: &Path,
    credentials: &Credentials,
    server: &str,
    owner: Option<User>,
    now: OffsetDateTime,
) -> Result<Renewed, CredentialError> {
    let path = super::credential_file(data_dir);
    let server_ca = read(&credentials.server_ca)?;
    let client_ca = read(&credentials.client_ca)?;
    let present = read_optional(&path)?;
    if let Some(validity) = present.and_then(|bytes| usable(&bytes, server, &server_ca, &client_ca, now))
        && !validity.is_due(now)
    {
        return Ok(Renewed { minted: false, validity });
    }
    let (certificate, key) =
        sign_client(&credentials.client_ca, &credentials.client_ca_key, ACCOUNT, now, LIFETIME)?;
    let kubeconfig = kubeconfig(server, &server_ca, &certificate, &key);
    let validity = usable(kubeconfig.as_bytes(), server, &server_ca, &client_ca, now).ok_or_else(|| {
        CredentialError::NotAPair {
            path: credentials.client_ca_key.clone(),
            certificate: credentials.client_ca.clone(),
        }
    })?;
    write_atomic(&path, kubeconfig.as_bytes(), owner)?;
    Ok(Renewed { minted: true, validity })
}

fn read(path: &Path) -> Result<Vec<u8>, CredentialError> {
    read_optional(path)?.ok_or_else(|| CredentialError::Missing { path: path.to_owned() })
}

fn kubeconfig(server: &str, server_ca: &[u8], certificate: &str, key: &str) -> String {
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: tenant\n\
         \x20 cluster:\n\
         \x20   server: {server}\n\
         \x20   certificate-authority-data: {}\n\
         users:\n\
         - name: cloud-controller-manager\n\
         \x20 user:\n\
         \x20   client-certificate-data: {}\n\
         \x20   client-key-data: {}\n\
         contexts:\n\
         - name: tenant\n\
         \x20 context:\n\
         \x20   cluster: tenant\n\
         \x20   user: cloud-controller-manager\n\
         current-context: tenant\n",
        STANDARD.encode(server_ca),
        STANDARD.encode(certificate),
        STANDARD.encode(key),
    )
}

/// The life of the credential in `kubeconfig`, if the API server of these CAs at `server` would take it for this account.
pub(super) fn usable(
    kubeconfig: &[u8],
    server: &str,
    server_ca: &[u8],
    client_ca: &[u8],
    now: OffsetDateTime,
) -> Option<Validity> {
    let config = Kubeconfig::from_yaml(std::str::from_utf8(kubeconfig).ok()?).ok()?;
    let cluster = config.clusters.first()?.cluster.as_ref()?;
    let ca = STANDARD.decode(cluster.certificate_authority_data.as_ref()?).ok()?;
    if cluster.server.as_deref() != Some(server) || ca != server_ca {
        return None;
    }
    let user = config.auth_infos.first()?.auth_info.as_ref()?;
    user.client_key_data.as_ref()?;
    let pem = STANDARD.decode(user.client_certificate_data.as_ref()?).ok()?;
    let der = CertificateDer::from_pem_slice(&pem).ok()?;
    if !is_signed_by(&der, client_ca, now)? {
        return None;
    }
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    let mut names = certificate.subject().iter_common_name().filter_map(|cn| cn.as_str().ok());
    if names.next() != Some(ACCOUNT) || names.next().is_some() {
        return None;
    }
    let validity = certificate.validity();
    Some(Validity {
        not_before: validity.not_before.to_datetime(),
        not_after: validity.not_after.to_datetime(),
    })
}

/// Asked the way a server asks; `None` when the CA itself cannot be read.
fn is_signed_by(certificate: &CertificateDer<'_>, client_ca: &[u8], now: OffsetDateTime) -> Option<bool> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(client_ca).ok()?).ok()?;
    let provider = Arc::new(ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().ok()?;
    let now = UnixTime::since_unix_epoch(Duration::try_from(now - OffsetDateTime::UNIX_EPOCH).ok()?);
    Some(verifier.verify_client_cert(certificate, &[], now).is_ok())
}

#[cfg(test)]
mod tests {
    use super::renew as renew_with;
    use super::*;
    use berth_actors::host::Distribution;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use std::fs;

    const SERVER: &str = "https://127.0.0.1:6443";

    fn renew(
        data_dir: &Path,
        server: &str,
        owner: Option<User>,
        now: OffsetDateTime,
    ) -> Result<Renewed, CredentialError> {
        let credentials = Credentials::of(Distribution::Kubernetes, data_dir);
        renew_with(data_dir, &credentials, server, owner, now)
    }

    fn write_ca(data_dir: &Path, name: &str) {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        let pki = data_dir.join("pki");
        fs::create_dir_all(&pki).unwrap();
        write_atomic(&pki.join(format!("{name}.crt")), certificate.as_bytes(), None).unwrap();
        write_atomic(&pki.join(format!("{name}.key")), key.serialize_pem().as_bytes(), None).unwrap();
    }

    fn tenant() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        write_ca(dir.path(), "server-ca");
        write_ca(dir.path(), "client-ca");
        dir
    }

    fn now() -> OffsetDateTime {
        crate::clock::now()
    }

    #[test]
    fn a_minted_credential_passes_the_controllers_own_check_and_is_kept() {
        let dir = tenant();
        let first = renew(dir.path(), SERVER, None, now()).unwrap();
        assert!(first.minted);
        let path = crate::ccm::credential_file(dir.path());
        let bytes = fs::read_to_string(&path).unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&bytes).unwrap();
        super::super::credential_check::check_file(&path, &path, &kubeconfig).unwrap();
        let again = renew(dir.path(), SERVER, None, now()).unwrap();
        assert_eq!(again, Renewed { minted: false, ..first });
        assert_eq!(fs::read_to_string(&path).unwrap(), bytes);
    }

    #[test]
    fn it_is_minted_anew_for_another_port_another_ca_and_with_less_than_a_third_left() {
        let dir = tenant();
        let start = now();
        let minted = |server, at| renew(dir.path(), server, None, at).unwrap().minted;
        assert!(minted(SERVER, start));
        assert!(!minted(SERVER, start + time::Duration::days(4)));
        assert!(minted(SERVER, start + time::Duration::days(5)));
        assert!(minted("https://127.0.0.1:7443", start + time::Duration::days(5)));
        write_ca(dir.path(), "client-ca");
        assert!(minted("https://127.0.0.1:7443", start + time::Duration::days(5)));
        write_ca(dir.path(), "server-ca");
        assert!(minted("https://127.0.0.1:7443", start + time::Duration::days(5)));
        write_atomic(&crate::ccm::credential_file(dir.path()), b"torn", None).unwrap();
        assert!(minted("https://127.0.0.1:7443", start + time::Duration::days(5)));
    }

    #[test]
    fn a_key_that_is_not_the_cas_is_refused_before_anything_is_written() {
        let dir = tenant();
        let stranger = tenant();
        fs::copy(stranger.path().join("pki/client-ca.key"), dir.path().join("pki/client-ca.key")).unwrap();
        let error = renew(dir.path(), SERVER, None, now()).unwrap_err().to_string();
        assert!(error.contains("client-ca.key") && !error.contains("BEGIN"), "{error}");
        assert!(!crate::ccm::credential_file(dir.path()).exists());
    }

    #[test]
    fn a_missing_ca_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let error = renew(dir.path(), SERVER, None, now()).unwrap_err().to_string();
        assert!(error.ends_with("server-ca.crt does not exist"), "{error}");
    }
}
