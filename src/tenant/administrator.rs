//! The daemon as a tenant's administrator: clients made of the address it knows and of PEM files, read with care.
//!
//! Gates and rotations ask an API server through these. A tenant's kubeconfig is for others and never read back: whoever has
//! the tenant's uid writes it as he likes, and what it may name (a program, a proxy, other files) would be run and read by root.

use super::credentials::Credentials;
use super::kubeconfig;
use crate::files;
use crate::https::Https;
use crate::off_thread::off_thread;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use std::path::Path;
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};

/// Where the API server is, and which files say who asks.
#[derive(Debug, Clone)]
pub(crate) struct Administrator {
    pub(super) port: u16,
    pub(super) credentials: Credentials,
}

/// The files' contents, PEM.
struct Material {
    ca: Vec<u8>,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Administrator {
    pub(super) async fn https(&self) -> Result<Https, String> {
        let Material { ca, certificate, key } = self.material().await?;
        Https::new(&ca, Some((&certificate, &key))).map_err(|error| error.to_string())
    }

    pub(super) async fn client(&self) -> Result<kube::Client, String> {
        kube::Client::try_from(self.config().await?).map_err(|error| self.is_unusable(error))
    }

    /// Whatever a kubeconfig could add to it stays unset.
    async fn config(&self) -> Result<kube::Config, String> {
        let Material { ca, certificate, key } = self.material().await?;
        let server = kubeconfig::server(self.port).parse().map_err(|error| self.is_unusable(error))?;
        let authorities: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&ca)
            .map(|authority| authority.map(|authority| authority.to_vec()))
            .collect();
        let authorities = authorities.map_err(|error| self.is_unusable(error))?;
        if authorities.is_empty() {
            // The host's own would be trusted instead.
            return Err(format!("{}: there is no certificate in it", self.credentials.server_ca.display()));
        }
        let mut config = kube::Config::new(server);
        config.root_cert = Some(authorities);
        config.auth_info.client_certificate_data = Some(BASE64.encode(certificate));
        config.auth_info.client_key_data = Some(BASE64.encode(key).into());
        Ok(config)
    }

    async fn material(&self) -> Result<Material, String> {
        let Credentials { server_ca, admin, admin_key, .. } = self.credentials.clone();
        let read = |path: &Path| files::read(path).map_err(|error| error.to_string());
        off_thread(move || {
            Ok(Material { ca: read(&server_ca)?, certificate: read(&admin)?, key: read(&admin_key)? })
        })
        .await
    }

    fn is_unusable(&self, error: impl std::fmt::Display) -> String {
        format!("the administrator's {} is not usable: {error}", self.credentials.admin.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tenant::pki::{self, Pki};
    use berth_actors::host::Distribution;

    fn administrator(data: &Path) -> Administrator {
        Pki { cluster: "demo".into(), dir: data.join(pki::DIR), owner: None }.ensure().unwrap();
        Administrator { port: 1, credentials: Credentials::of(Distribution::Kubernetes, data) }
    }

    #[tokio::test]
    async fn it_is_its_certificate_and_nothing_that_a_file_of_the_tenant_asks_for() {
        let data = tempfile::tempdir().unwrap();
        let mut config = administrator(data.path()).config().await.unwrap();
        assert_eq!(config.cluster_url.to_string(), "https://127.0.0.1:1/");
        assert_eq!(config.root_cert.as_ref().map(Vec::len), Some(1));
        assert_eq!((&config.proxy_url, &config.root_cert_file), (&None, &None));
        let auth = &mut config.auth_info;
        assert!(auth.client_certificate_data.take().is_some() && auth.client_key_data.take().is_some());
        let bare = format!("{:?}", kube::config::AuthInfo::default());
        assert_eq!(format!("{auth:?}"), bare, "no program, no token, no provider, no other file");
    }

    #[tokio::test]
    async fn a_program_in_the_tenants_kubeconfig_is_never_run() {
        let data = tempfile::tempdir().unwrap();
        let administrator = administrator(data.path());
        let ran = data.path().join("ran");
        let planted = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\n\
             clusters: [{{name: x, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
             contexts: [{{name: x, context: {{cluster: x, user: x}}}}]\n\
             users: [{{name: x, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: /bin/touch, \
             args: ['{}'], interactiveMode: Never}}}}}}]\n",
            ran.display()
        );
        files::write_atomic(&data.path().join("kubeconfig"), planted.as_bytes(), None).unwrap();
        let client = administrator.client().await.unwrap();
        client.apiserver_version().await.unwrap_err();
        assert!(!ran.exists());
    }

    #[tokio::test]
    async fn a_key_that_is_a_link_or_a_pipe_is_refused_by_name_at_once() {
        let data = tempfile::tempdir().unwrap();
        let administrator = administrator(data.path());
        let key = &administrator.credentials.admin_key;
        let elsewhere = data.path().join("elsewhere");
        std::fs::rename(key, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, key).unwrap();
        let refused = administrator.https().await.unwrap_err();
        assert!(refused.contains("admin.key"), "{refused}");
        std::fs::remove_file(key).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, key, rustix::fs::Mode::RUSR).unwrap();
        let refused = administrator.config().await.unwrap_err();
        assert!(refused.contains("admin.key"), "{refused}");
    }
}
