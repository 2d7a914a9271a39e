//! kcp's admin.kubeconfig as far as Berth needs it, and the kubeconfig that consumers get instead (K5).
//!
//! Two users live in the file: `kcp-admin`, whose token lives as long as one process of one slot, and `shard-admin`, whose
//! token both slots share. Only the second one ever leaves this module.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube::config::{Kubeconfig, NamedAuthInfo};
use std::fmt;

/// The user whose token survives a restart and a handover.
const SHARD_ADMIN: &str = "shard-admin";
/// The contexts a consumer may use; both belong to [`SHARD_ADMIN`].
const CONSUMER_CONTEXTS: [&str; 2] = ["system:admin", "shard-base"];

/// A bearer token. Never shown by `Debug`; read it where a request is built, nowhere else.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The value of an `Authorization` header.
    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Why the file is of no use. The parser's own words are left out: they quote the file, and the file holds tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KubeconfigProblem {
    #[error("is empty")]
    Empty,
    #[error("is not a kubeconfig")]
    NotAKubeconfig,
    #[error("has certificate-authority-data that is not base64")]
    CertificateAuthority,
    #[error("has no context {0:?} of the user shard-admin")]
    Context(&'static str),
    #[error("has no token for the user shard-admin")]
    Token,
}

/// Finds the shard-admin token, after checking what kcp itself would trip over.
pub fn shard_admin_token(file: &[u8]) -> Result<Token, KubeconfigProblem> {
    let text = std::str::from_utf8(file).map_err(|_| KubeconfigProblem::NotAKubeconfig)?;
    if text.trim().is_empty() {
        return Err(KubeconfigProblem::Empty);
    }
    let config = Kubeconfig::from_yaml(text).map_err(|_| KubeconfigProblem::NotAKubeconfig)?;
    for cluster in config.clusters.iter().filter_map(|named| named.cluster.as_ref()) {
        if let Some(data) = &cluster.certificate_authority_data {
            BASE64.decode(data).map_err(|_| KubeconfigProblem::CertificateAuthority)?;
        }
    }
    for name in CONSUMER_CONTEXTS {
        let user = config
            .contexts
            .iter()
            .find(|named| named.name == name)
            .and_then(|named| named.context.as_ref()?.user.as_deref());
        if user != Some(SHARD_ADMIN) {
            return Err(KubeconfigProblem::Context(name));
        }
    }
    let user = config.auth_infos.iter().find(|named| named.name == SHARD_ADMIN);
    user.and_then(token_of).ok_or(KubeconfigProblem::Token)
}

/// kube hides the token in a secret type of a crate of its own; its serialised form is the public way to it.
fn token_of(user: &NamedAuthInfo) -> Option<Token> {
    let value = serde_json::to_value(user.auth_info.as_ref()?).ok()?;
    let token = value.get("token")?.as_str()?;
    (!token.is_empty()).then(|| Token(token.to_owned()))
}

/// The kubeconfig for consumers: the front's address, the certificate both slots serve with, and shard-admin alone.
pub fn consumer(front_port: u16, certificate_pem: &[u8], token: &Token) -> String {
    let front = format!("https://127.0.0.1:{front_port}");
    let authority = BASE64.encode(certificate_pem);
    let [admin, base] = CONSUMER_CONTEXTS;
    // A JSON string is a YAML string: whatever the token holds, it cannot end its own quotes.
    let token = serde_json::Value::from(token.expose());
    format!(
        "\
apiVersion: v1
kind: Config
clusters:
- name: base
  cluster:
    certificate-authority-data: {authority}
    server: {front}
- name: {admin}
  cluster:
    certificate-authority-data: {authority}
    server: {front}/clusters/system:admin
contexts:
- name: {base}
  context:
    cluster: base
    user: {SHARD_ADMIN}
- name: {admin}
  context:
    cluster: {admin}
    user: {SHARD_ADMIN}
current-context: {admin}
users:
- name: {SHARD_ADMIN}
  user:
    token: {token}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kcp::fixture::Fixture;

    #[test]
    fn the_shard_admin_token_is_found_and_the_volatile_one_is_not() {
        let fixture = Fixture::new();
        let token = shard_admin_token(&fixture.kubeconfig).unwrap();
        assert_eq!(token.expose(), fixture.shard_admin);
        assert_ne!(token.expose(), fixture.kcp_admin);
        assert_eq!(format!("{token:?}"), "Token(..)");
    }

    #[test]
    fn a_consumer_sees_two_contexts_of_one_user_behind_the_front() {
        let fixture = Fixture::new();
        let text = consumer(6443, &fixture.certificate, &Token(fixture.shard_admin.clone()));
        assert!(!text.contains(&fixture.kcp_admin) && !text.contains("kcp-admin"));

        let config = Kubeconfig::from_yaml(&text).unwrap();
        let contexts: Vec<_> = config.contexts.iter().map(|context| context.name.as_str()).collect();
        assert_eq!(contexts, ["shard-base", "system:admin"]);
        let servers: Vec<_> =
            config.clusters.iter().map(|named| named.cluster.clone().unwrap().server.unwrap()).collect();
        assert_eq!(servers, ["https://127.0.0.1:6443", "https://127.0.0.1:6443/clusters/system:admin"]);
        assert_eq!(shard_admin_token(text.as_bytes()).unwrap().expose(), fixture.shard_admin);
    }

    #[test]
    fn a_token_with_a_quote_stays_inside_its_string() {
        let odd = Token("a\"\nusers: []".into());
        let text = consumer(6443, b"pem", &odd);
        assert_eq!(shard_admin_token(text.as_bytes()).unwrap(), odd);
    }
}
