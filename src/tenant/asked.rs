//! What a running component says of the credentials it holds: files say only what it should hold.
//!
//! A rotation asks here whether its step has been taken up. Every question has a deadline.

use super::administrator::Administrator;
use super::{defaults, kubeconfig};
use crate::https::Https;
use http::StatusCode;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The certificate that a server shows, DER; the server must be one of the authority in `ca_pem`.
pub(crate) async fn certificate_of(address: SocketAddr, ca_pem: &[u8]) -> Result<Vec<u8>, String> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(ca_pem).map_err(|error| error.to_string())?;
    roots.add(ca).map_err(|error| error.to_string())?;
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let greet = async {
        let stream = TcpStream::connect(address).await?;
        TlsConnector::from(Arc::new(config)).connect(ServerName::from(address.ip()), stream).await
    };
    let late = |_| format!("{address}: no handshake within {} s", defaults::PROBE_ANSWER.as_secs());
    let stream = tokio::time::timeout(defaults::PROBE_ANSWER, greet).await.map_err(late)?;
    let stream = stream.map_err(|error| format!("{address}: {error}"))?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    shown.map(|certificate| certificate.to_vec()).ok_or_else(|| format!("{address} shows no certificate"))
}

/// An API server on this host, as its administrator.
#[derive(Debug)]
pub(crate) struct ApiServer {
    https: Https,
    port: u16,
}

impl ApiServer {
    pub(crate) async fn new(administrator: &Administrator) -> Result<Self, String> {
        Ok(Self { https: administrator.https().await?, port: administrator.port })
    }

    /// Names of the keys that it takes ServiceAccounts' tokens of.
    pub(crate) async fn verifiers(&self) -> Result<BTreeSet<String>, String> {
        let body = self.read("/openid/v1/jwks").await?;
        let list: serde_json::Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
        let keys = list["keys"].as_array().ok_or("the API server's list of keys is none")?;
        Ok(keys.iter().filter_map(|key| key["kid"].as_str().map(str::to_owned)).collect())
    }

    /// Whether it seals and opens with the configuration of this digest.
    pub(crate) async fn seals_by(&self, digest: &str) -> Result<bool, String> {
        let body = self.read("/metrics").await?;
        Ok(is_in_use(&String::from_utf8_lossy(&body), digest))
    }

    async fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let url = format!("{}{path}", kubeconfig::server(self.port));
        match self.https.get(&url, defaults::POSTGRES_ANSWER).await {
            Ok((StatusCode::OK, body)) => Ok(body.to_vec()),
            Ok((status, _)) => Err(format!("the API server answers {path} with {}", status.as_u16())),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn is_in_use(metrics: &str, digest: &str) -> bool {
    let mut infos = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("apiserver_encryption_config_controller_last_config_info{"));
    infos.any(|info| info.contains(&format!("hash=\"{digest}\"")) && info.ends_with(" 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_in_use_is_told_by_its_digest() {
        let metrics = "# TYPE x gauge\n\
            apiserver_encryption_config_controller_last_config_info{apiserver_id_hash=\"sha256:a\",hash=\"sha256:b\"} 1\n";
        assert!(is_in_use(metrics, "sha256:b"));
        assert!(!is_in_use(metrics, "sha256:c") && !is_in_use("", "sha256:b"));
    }
}
