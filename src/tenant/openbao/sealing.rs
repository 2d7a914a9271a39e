//! Has a vault seal its root key with the newest seal key, and proves that it did.
//!
//! OpenBao would do so by itself at its start, if it had a recovery key; a vault that initialised itself has none. A new root
//! key is written with the key that seals now, whatever it was sealed with before.

use super::super::defaults;
use super::super::postgres::databases;
use super::super::stack::OPENBAO_DATABASE;
use super::files::Files;
use super::login;
use crate::https::Https;
use crate::one_line::one_line;
use http::{Method, StatusCode};
use std::net::SocketAddr;
use std::path::Path;

/// A new root key. Everything else in the vault stays as it is.
pub(crate) async fn rotate_root(files: &Files, ca: &Path, address: SocketAddr) -> Result<(), String> {
    let (ca, password) = files.to_log_in(ca).await?;
    let https = Https::new(&ca, None).map_err(one_line)?;
    let token = login::token(&https, address, &password).await?;
    let url = format!("https://{address}/v1/sys/rotate/root");
    let headers = [("X-Vault-Token", token.as_str())];
    let answer = https.send(Method::POST, &url, &headers, Vec::new(), defaults::POSTGRES_ANSWER).await;
    login::give_back(&https, address, &token).await;
    match answer {
        Ok((StatusCode::OK | StatusCode::NO_CONTENT, _)) => Ok(()),
        Ok((status, _)) => Err(format!("OpenBao answers sys/rotate/root with {}", status.as_u16())),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether what opens the vault is sealed with the key of this name, as its database has it.
pub(crate) async fn is_sealed_with(sockets: &Path, id: &str) -> Result<bool, String> {
    let client = databases::connect(sockets, OPENBAO_DATABASE, OPENBAO_DATABASE).await.map_err(one_line)?;
    let query = "SELECT position($1 IN value) > 0 FROM openbao_kv_store WHERE key = 'barrier-unseal-keys'";
    let asked = tokio::time::timeout(defaults::POSTGRES_ANSWER, client.query(query, &[&id.as_bytes()])).await;
    let rows = asked.map_err(|_| "postgres does not answer")?.map_err(one_line)?;
    match &rows[..] {
        [row] => row.try_get(0).map_err(one_line),
        _ => Err("the vault's database has no stored root key".to_owned()),
    }
}
