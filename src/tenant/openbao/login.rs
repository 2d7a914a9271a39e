//! Whether the vault lets its operator in. Its health page alone says yes during a database outage and after a torn
//! initialisation.

use super::super::defaults;
use crate::https::{Https, HttpsError};
use crate::one_line::one_line;
use http::{Method, StatusCode};
use std::net::SocketAddr;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    In,
    NotYet(String),
    /// Unsealed and serving, but this login is unknown to it.
    Refused,
}

/// Health, then a login. The token is given back at once.
pub(super) async fn try_once(https: &Https, address: SocketAddr, password: &str) -> Answer {
    let base = format!("https://{address}/v1");
    let health = match https.get(&format!("{base}/sys/health"), defaults::PROBE_ANSWER).await {
        Ok((status, _)) => status,
        Err(error) => return Answer::NotYet(error.to_string()),
    };
    if health != StatusCode::OK {
        return Answer::NotYet(format!("OpenBao health {}", health.as_u16()));
    }
    let (status, token) = match log_in(https, address, password).await {
        Ok(answer) => answer,
        Err(error) => return Answer::NotYet(error.to_string()),
    };
    let answer = judge(status);
    if let (Answer::In, Some(token)) = (&answer, token) {
        give_back(https, address, &token).await;
    }
    answer
}

async fn log_in(
    https: &Https,
    address: SocketAddr,
    password: &str,
) -> Result<(StatusCode, Option<String>), HttpsError> {
    let body = serde_json::json!({ "password": password }).to_string().into_bytes();
    let url = format!("https://{address}/v1/auth/userpass/login/ops");
    let (status, body) = https.send(Method::POST, &url, &[], body, defaults::PROBE_ANSWER).await?;
    let answer = serde_json::from_slice::<serde_json::Value>(&body).ok();
    Ok((status, answer.and_then(|answer| answer["auth"]["client_token"].as_str().map(str::to_owned))))
}

/// A token of the vault's operator, for whoever gives it back.
pub(super) async fn token(https: &Https, address: SocketAddr, password: &str) -> Result<String, String> {
    let (status, token) = log_in(https, address, password).await.map_err(|error| error.to_string())?;
    token.ok_or_else(|| format!("OpenBao answers the ops login with {}", status.as_u16()))
}

/// A token left behind ends by itself.
pub(super) async fn give_back(https: &Https, address: SocketAddr, token: &str) {
    let url = format!("https://{address}/v1/auth/token/revoke-self");
    let headers = [("X-Vault-Token", token)];
    let _best_effort = https.send(Method::POST, &url, &headers, Vec::new(), defaults::PROBE_ANSWER).await;
}

/// 400: wrong password; 403: no such login. 500 while its database is away.
fn judge(login: StatusCode) -> Answer {
    match login {
        StatusCode::OK => Answer::In,
        StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN => Answer::Refused,
        other => Answer::NotYet(format!("OpenBao answers the ops login with {}", other.as_u16())),
    }
}

/// Log lines after which no waiting and no restart helps, as the reason for the operator.
pub(in crate::tenant) fn fatal_line(line: &str) -> Option<String> {
    if let Some(at) = line.find("unknown or unsupported field") {
        // Only a warning to OpenBao, which then runs without the setting: for one, with another listener.
        let end = line[at..].find(" found in configuration").map_or(line.len(), |end| at + end);
        return Some(format!(
            "OpenBao does not know a setting of its configuration: {}",
            one_line(&line[at..end])
        ));
    }
    let undecryptable =
        line.contains("failed to decrypt keys from storage") || line.contains("unknown key id for data");
    undecryptable
        .then(|| "OpenBao cannot open its database with this seal key: restore bao/unseal.key".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_login_that_works_opens_the_gate() {
        assert_eq!(judge(StatusCode::OK), Answer::In);
        assert_eq!(judge(StatusCode::FORBIDDEN), Answer::Refused);
        assert_eq!(judge(StatusCode::BAD_REQUEST), Answer::Refused);
        assert!(matches!(judge(StatusCode::INTERNAL_SERVER_ERROR), Answer::NotYet(_)));
    }

    #[test]
    fn a_mistyped_setting_and_a_foreign_seal_key_are_fatal_and_chatter_is_not() {
        let typo = r#"{"@level":"warn","@message":"unknown or unsupported field disable_clusterin found in configuration at bao.hcl:13:1"}"#;
        assert_eq!(
            fatal_line(typo).as_deref(),
            Some(
                "OpenBao does not know a setting of its configuration: unknown or unsupported field disable_clusterin"
            )
        );
        let key = r#"{"@message":"fetching stored unseal keys failed: invalid key: failed to decrypt keys from storage: cipher: message authentication failed"}"#;
        assert!(fatal_line(key).is_some_and(|reason| reason.contains("unseal.key")));
        assert_eq!(fatal_line(r#"{"@message":"post-unseal setup complete"}"#), None);
    }
}
