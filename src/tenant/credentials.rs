//! Where the certificates of a tenant lie: in Berth's own `pki/`, or where k3s keeps them.
//!
//! Whoever needs a CA or the administrator's certificate asks here. Nothing is copied from one place to the other, and
//! nothing is read here.

use super::{k3s, pki};
use berth_actors::host::Distribution;
use std::path::{Path, PathBuf};

/// The files that let others into one tenant's Kubernetes. All PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// Signs what the API server shows.
    pub server_ca: PathBuf,
    /// Signs what clients show.
    pub client_ca: PathBuf,
    pub client_ca_key: PathBuf,
    /// Of the group system:masters.
    pub admin: PathBuf,
    pub admin_key: PathBuf,
}

impl Credentials {
    /// Those of the tenant in `data_dir`.
    pub fn of(distribution: Distribution, data_dir: &Path) -> Self {
        let (dir, admin) = match distribution {
            Distribution::Kubernetes => (data_dir.join(pki::DIR), "admin"),
            Distribution::K3s => (data_dir.join(k3s::TLS), "client-admin"),
        };
        let file = |name: &str, extension: &str| dir.join(format!("{name}.{extension}"));
        Self {
            server_ca: file("server-ca", "crt"),
            client_ca: file("client-ca", "crt"),
            client_ca_key: file("client-ca", "key"),
            admin: file(admin, "crt"),
            admin_key: file(admin, "key"),
        }
    }
}

/// Every CA certificate a tenant may have: the name it is recorded under, and its file below the data directory. A tenant
/// of k3s has both halves: its vault's certificate comes from Berth's own.
pub const AUTHORITIES: [(&str, &str); 6] = [
    ("server-ca", "pki/server-ca.crt"),
    ("client-ca", "pki/client-ca.crt"),
    ("front-proxy-ca", "pki/front-proxy-ca.crt"),
    ("k3s-server-ca", "k3s/server/tls/server-ca.crt"),
    ("k3s-client-ca", "k3s/server/tls/client-ca.crt"),
    ("k3s-request-header-ca", "k3s/server/tls/request-header-ca.crt"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_authorities_on_record_are_those_that_sign() {
        for distribution in [Distribution::Kubernetes, Distribution::K3s] {
            let credentials = Credentials::of(distribution, Path::new("/s/demo"));
            for file in [credentials.server_ca, credentials.client_ca] {
                let recorded = AUTHORITIES.iter().any(|(_, path)| Path::new("/s/demo").join(path) == file);
                assert!(recorded, "{}", file.display());
            }
        }
    }
}
