//! The API server's encryption at rest.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

/// Everything a tenant may consider secret is sealed before it reaches kine, whose log and database see only that.
pub(super) fn config(key: &[u8; 32]) -> String {
    let config = serde_json::json!({
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{
            "resources": ["secrets", "configmaps"],
            "providers": [{ "secretbox": { "keys": [{ "name": "k1", "secret": BASE64.encode(key) }] } }],
        }],
    });
    format!("{config:#}\n")
}
