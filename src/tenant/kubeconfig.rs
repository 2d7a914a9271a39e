//! Kubeconfigs with everything inline, as stock kubectl reads them.

use super::config_file;
use crate::files::{self, FileError};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use berth_actors::spec::User;
use std::path::Path;

/// What a client needs to reach one cluster as one user. PEM texts.
#[derive(Debug, Clone, Copy)]
pub struct Access<'a> {
    /// Names both the cluster and the context.
    pub cluster: &'a str,
    pub user: &'a str,
    pub server: &'a str,
    pub ca: &'a [u8],
    pub certificate: &'a [u8],
    pub key: &'a [u8],
}

/// The file's text. Names are quoted: a cluster may be called `null` or `1`.
pub fn text(access: &Access<'_>) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let (cluster, user, server) = (quoted(access.cluster), quoted(access.user), quoted(access.server));
    let ca = BASE64.encode(access.ca);
    let certificate = BASE64.encode(access.certificate);
    let key = BASE64.encode(access.key);
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: {cluster}
  cluster:
    server: {server}
    certificate-authority-data: {ca}
users:
- name: {user}
  user:
    client-certificate-data: {certificate}
    client-key-data: {key}
contexts:
- name: {cluster}
  context:
    cluster: {cluster}
    user: {user}
current-context: {cluster}
"
    )
}

/// The same as files, for the API server on `port` of this host.
#[derive(Debug, Clone, Copy)]
pub(super) struct Files<'a> {
    pub(super) cluster: &'a str,
    pub(super) user: &'a str,
    pub(super) port: u16,
    pub(super) ca: &'a Path,
    pub(super) certificate: &'a Path,
    pub(super) key: &'a Path,
}

/// Writes the kubeconfig made of `files` to `path`. Blocking.
pub(super) fn write(path: &Path, files: &Files<'_>, owner: Option<User>) -> Result<(), FileError> {
    let text = text(&Access {
        cluster: files.cluster,
        user: files.user,
        server: &server(files.port),
        ca: &files::read(files.ca)?,
        certificate: &files::read(files.certificate)?,
        key: &files::read(files.key)?,
    });
    config_file::keep(path, text.as_bytes(), owner)
}

/// The API server's URL for clients on this host.
pub fn server(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_named_like_a_yaml_word_keeps_its_name() {
        let access = Access {
            cluster: "null",
            user: "admin",
            server: "https://127.0.0.1:16443",
            ca: b"ca",
            certificate: b"certificate",
            key: b"key",
        };
        let config = kube::config::Kubeconfig::from_yaml(&text(&access)).unwrap();
        assert_eq!(config.current_context.as_deref(), Some("null"));
        assert_eq!(config.contexts[0].context.as_ref().unwrap().cluster, "null");
        assert_eq!(config.contexts[0].context.as_ref().unwrap().user.as_deref(), Some("admin"));
        let cluster = config.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://127.0.0.1:16443"));
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("Y2E="));
        assert_eq!(
            config.auth_infos[0].auth_info.as_ref().unwrap().client_certificate_data.as_deref(),
            Some("Y2VydGlmaWNhdGU=")
        );
    }
}
