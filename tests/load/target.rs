//! Where the load goes: the front, and the credentials of a kubeconfig. Nothing here is ever printed.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube::config::Kubeconfig;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};

pub struct Target {
    pub front: SocketAddr,
    /// What comes before `/api` in every path.
    pub base: String,
    pub ca: String,
    pub token: String,
    pub kubeconfig: PathBuf,
    roots: Arc<RootCertStore>,
}

impl Target {
    /// The cluster of the current context, at the address of `front`.
    pub fn read(kubeconfig: &Path, front: SocketAddr) -> Result<Self, String> {
        let named = |what: &str| format!("{}: no {what}", kubeconfig.display());
        let file = Kubeconfig::read_from(kubeconfig).map_err(|_| named("kubeconfig"))?;
        let current = file.current_context.as_deref().ok_or_else(|| named("current context"))?;
        let context = file.contexts.iter().find(|context| context.name == current);
        let context = context.and_then(|named| named.context.as_ref()).ok_or_else(|| named("context"))?;
        let cluster = file.clusters.iter().find(|cluster| cluster.name == context.cluster);
        let cluster = cluster.and_then(|named| named.cluster.as_ref()).ok_or_else(|| named("cluster"))?;
        let server = cluster.server.as_deref().ok_or_else(|| named("server"))?;
        let base = server.splitn(4, '/').nth(3).map(|path| format!("/{path}")).unwrap_or_default();
        let ca = cluster.certificate_authority_data.as_deref().ok_or_else(|| named("authority"))?;
        let ca = BASE64.decode(ca).ok().and_then(|ca| String::from_utf8(ca).ok());
        let ca = ca.ok_or_else(|| named("readable authority"))?;
        let user = file.auth_infos.iter().find(|user| Some(&user.name) == context.user.as_ref());
        // kube hides the token in a type of another crate; its serialised form is the public way to it.
        let user = user.and_then(|user| serde_json::to_value(user.auth_info.as_ref()?).ok());
        let token = user.as_ref().and_then(|user| user["token"].as_str()).ok_or_else(|| named("token"))?;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(ca.as_bytes()).flatten() {
            roots.add(certificate).map_err(|error| error.to_string())?;
        }
        let (roots, token, kubeconfig) = (Arc::new(roots), token.to_owned(), kubeconfig.to_owned());
        Ok(Self { front, base, ca, token, kubeconfig, roots })
    }

    /// The path of the ConfigMaps all classes work on.
    pub fn config_maps(&self) -> String {
        format!("{}/api/v1/namespaces/default/configmaps", self.base)
    }

    pub async fn connect(&self, protocol: &[u8]) -> std::io::Result<TlsStream<TcpStream>> {
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(std::io::Error::other)?
            .with_root_certificates(Arc::clone(&self.roots))
            .with_no_client_auth();
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(self.front).await?;
        stream.set_nodelay(true)?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::from(self.front.ip()), stream).await
    }
}
