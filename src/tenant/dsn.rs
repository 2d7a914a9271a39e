//! Connection URLs of the tenant's postgres. Built here and nowhere else: kine prints a malformed one in full.

use std::fmt::Write;
use std::path::Path;

/// A database and the role that owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Database {
    pub name: String,
    pub role: String,
}

impl Database {
    /// A database owned by a role of the same name.
    pub fn named(name: &str) -> Self {
        Self { name: name.to_owned(), role: name.to_owned() }
    }

    /// The URL for a client on this host. It carries no password: the kernel tells postgres who connects.
    pub fn url(&self, sockets: &Path) -> String {
        let host = escaped(sockets.as_os_str().as_encoded_bytes());
        format!("postgres://{}@/{}?host={host}", escaped(self.role.as_bytes()), escaped(self.name.as_bytes()))
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte) {
            text.push(byte.into());
        } else {
            let _infallible = write!(text, "%{byte:02X}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_role_database_and_socket_directory() {
        assert_eq!(
            Database::named("kine").url(Path::new("/run/berth-1/demo")),
            "postgres://kine@/kine?host=/run/berth-1/demo"
        );
    }

    #[test]
    fn a_path_cannot_break_out_of_its_place_in_the_url() {
        let database = Database { name: "kcp".to_owned(), role: "store".to_owned() };
        assert_eq!(
            database.url(Path::new("/run/a b&user=x%2F#")),
            "postgres://store@/kcp?host=/run/a%20b%26user%3Dx%252F%23"
        );
    }
}
