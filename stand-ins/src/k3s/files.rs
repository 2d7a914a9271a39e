//! What k3s leaves on disk: `<data-dir>/server/{tls,cred}`, its token, the kubeconfigs. Each file as k3s would have it.

use super::args::Options;
use super::{authorities, token};
use base64::{Engine, engine::general_purpose::STANDARD};
use rand::TryRngCore;
use sha2::{Digest, Sha256};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A private directory.
#[derive(Debug, Clone)]
pub(super) struct Dir(PathBuf);

impl Dir {
    fn create(path: PathBuf) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
        Ok(Self(path))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.path(name).exists()
    }

    pub(super) fn read(&self, name: &str) -> io::Result<String> {
        crate::own_files::text(self.path(name))
    }

    pub(super) fn write(&self, name: &str, text: &str) -> io::Result<()> {
        write(&self.path(name), text)
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?
        .write_all(text.as_bytes())
}

/// Where everything is.
#[derive(Debug)]
pub(super) struct Files {
    pub tls: Dir,
    pub cred: Dir,
}

impl Files {
    /// Blocking.
    pub(super) fn write(options: &Options, secret: &str) -> io::Result<Self> {
        let server = Dir::create(options.data_dir.join("server"))?;
        let (tls, cred) = (Dir::create(server.path("tls"))?, Dir::create(server.path("cred"))?);
        authorities::ensure(&tls, &first_service_ip(&options.service_cidr)?)?;
        let files = Self { tls, cred };
        for (name, certificate) in [
            ("admin", "client-admin"),
            ("controller", "client-controller"),
            ("scheduler", "client-scheduler"),
        ] {
            // The real ones point at the port behind, where its own API server listens.
            let text = files.by_path(certificate, options.port);
            files.cred.write(&format!("{name}.kubeconfig"), &text)?;
        }
        if options.secrets_encryption && !files.cred.has("encryption-config.json") {
            files.cred.write("encryption-config.json", &encryption()?)?;
        }
        let ca = hex::encode(Sha256::digest(files.tls.read("server-ca.crt")?));
        server.write("token", &token::full(secret, &ca))?;
        if let Some(path) = &options.kubeconfig {
            write(path, &files.inline("client-admin", options.port)?)?;
            link_from_home(path)?;
        }
        Ok(files)
    }

    pub(super) fn certificate(&self, name: &str) -> PathBuf {
        self.tls.path(&format!("{name}.crt"))
    }

    pub(super) fn key(&self, name: &str) -> PathBuf {
        self.tls.path(&format!("{name}.key"))
    }

    fn by_path(&self, name: &str, port: u16) -> String {
        kubeconfig(
            "local",
            "user",
            port,
            &format!("certificate-authority: {}", self.certificate("server-ca").display()),
            &format!("client-certificate: {}", self.certificate(name).display()),
            &format!("client-key: {}", self.key(name).display()),
        )
    }

    fn inline(&self, name: &str, port: u16) -> io::Result<String> {
        let data = |file: &str| self.tls.read(file).map(|text| STANDARD.encode(text));
        Ok(kubeconfig(
            "default",
            "default",
            port,
            &format!("certificate-authority-data: {}", data("server-ca.crt")?),
            &format!("client-certificate-data: {}", data(&format!("{name}.crt"))?),
            &format!("client-key-data: {}", data(&format!("{name}.key"))?),
        ))
    }
}

fn kubeconfig(cluster: &str, user: &str, port: u16, ca: &str, certificate: &str, key: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
clusters:
- name: {cluster}
  cluster:
    server: https://127.0.0.1:{port}
    {ca}
users:
- name: {user}
  user:
    {certificate}
    {key}
contexts:
- name: {cluster}
  context:
    cluster: {cluster}
    user: {user}
current-context: {cluster}
"
    )
}

fn encryption() -> io::Result<String> {
    let mut key = [0; 32];
    rand::rngs::OsRng.try_fill_bytes(&mut key).map_err(io::Error::other)?;
    let config = serde_json::json!({
        "kind": "EncryptionConfiguration",
        "apiVersion": "apiserver.config.k8s.io/v1",
        "resources": [{
            "resources": ["secrets"],
            "providers": [
                {"aescbc": {"keys": [{"name": "aescbckey", "secret": STANDARD.encode(key)}]}},
                {"identity": {}},
            ],
        }],
    });
    Ok(config.to_string())
}

/// k3s replaces the kubeconfig in the home of whoever runs it by a link to its own.
fn link_from_home(kubeconfig: &Path) -> io::Result<()> {
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from) else { return Ok(()) };
    let link = home.join(".kube/k3s.yaml");
    fs::create_dir_all(home.join(".kube"))?;
    match fs::remove_file(&link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(kubeconfig, &link)
}

/// Goes into the API server's certificate.
fn first_service_ip(cidr: &str) -> io::Result<String> {
    let invalid = || io::Error::other(format!("invalid service-cidr {cidr}"));
    let (network, bits) = cidr.split_once('/').ok_or_else(invalid)?;
    let network: Ipv4Addr = network.parse().map_err(|_| invalid())?;
    let bits: u32 = bits.parse().ok().filter(|bits| (8..=30).contains(bits)).ok_or_else(invalid)?;
    let mask = u32::MAX << (32 - bits);
    Ok(Ipv4Addr::from((u32::from(network) & mask) + 1).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_service_address_is_the_networks_first() {
        assert_eq!(first_service_ip("10.96.0.0/16").unwrap(), "10.96.0.1");
        assert_eq!(first_service_ip("10.43.7.0/16").unwrap(), "10.43.0.1");
        assert!(first_service_ip("10.43.0.0").is_err());
    }
}
