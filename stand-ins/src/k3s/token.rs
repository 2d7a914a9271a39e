//! The token: k3s encrypts its CA keys with it, so another one cannot open existing data. Here it is only compared.

use std::io;
use std::path::Path;

pub(super) const DIFFERENT: &str =
    "starting kubernetes: preparing server: bootstrap data already found and encrypted with different token";

/// The token in `file`, if it is the one of the data in `server`. Blocking.
pub(super) fn read(file: &Path, server: &Path) -> Result<String, String> {
    let text = crate::own_files::text(file).map_err(|error| format!("open {}: {error}", file.display()))?;
    let token = text.trim().to_owned();
    if token.is_empty() {
        return Err(format!("{} is empty", file.display()));
    }
    match crate::own_files::text(server.join("token")) {
        Ok(used) if used.trim_end().rsplit(':').next() == Some(&token) => Ok(token),
        Ok(_) => Err(DIFFERENT.to_owned()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(token),
        Err(error) => Err(error.to_string()),
    }
}

/// As k3s writes it down for agents: with the hash of the CA they will meet.
pub(super) fn full(token: &str, ca_hash: &str) -> String {
    format!("K10{ca_hash}::server:{token}\n")
}
