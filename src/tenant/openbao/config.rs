//! The server's configuration file. It names secrets' files and variables, never a secret.

use super::super::pki::Pki;
use super::files::Files;
use super::seal::SealKey;
use std::path::Path;

/// Read by the self-initialisation below, on the first start only.
pub(super) const PASSWORD_VARIABLE: &str = "INITIAL_OPS_PASSWORD";

/// Port 0 is found through the process's sockets. No api_addr: it is advertised to other nodes, and there are none.
/// max_connect_retries 1: with 0 it waits for its database in silence and is deaf to SIGTERM.
/// disable_clustering: else it opens a second listener.
pub(super) fn text(files: &Files, pki: &Pki) -> String {
    let certificate = quoted(&pki.certificate("bao"));
    let key = quoted(&pki.key("bao"));
    let seal = seal(files);
    format!(
        r#"storage "postgresql" {{
  table = "openbao_kv_store"
  ha_enabled = "false"
  max_parallel = "8"
  max_connect_retries = "1"
}}
listener "tcp" {{
  address = "127.0.0.1:0"
  tls_cert_file = {certificate}
  tls_key_file = {key}
}}
disable_clustering = true
ui = false
log_format = "json"
seal "static" {{
{seal}}}
initialize "setup" {{
  request "mount-kv" {{
    operation = "update"
    path = "sys/mounts/kv"
    data = {{ type = "kv", options = {{ version = "2" }} }}
  }}
  request "policy" {{
    operation = "update"
    path = "sys/policies/acl/ops"
    data = {{ policy = "path \"*\" {{ capabilities = [\"create\",\"read\",\"update\",\"delete\",\"list\",\"sudo\"] }}" }}
  }}
  request "auth" {{
    operation = "update"
    path = "sys/auth/userpass"
    data = {{ type = "userpass" }}
  }}
  request "user" {{
    operation = "update"
    path = "auth/userpass/users/ops"
    data = {{
      password = {{ eval_type = "string", eval_source = "env", env_var = "{PASSWORD_VARIABLE}" }}
      token_policies = ["ops"]
    }}
  }}
}}
"#
    )
}

/// The key that seals and, during a rotation, the one that still opens. Blocking.
fn seal(files: &Files) -> String {
    let key = |which: &str, key: &SealKey| {
        let file = serde_json::Value::from(format!("file://{}", key.path.display()));
        format!("  {which}_key_id = \"{}\"\n  {which}_key = {file}\n", key.id())
    };
    let previous = files.previous_seal_key().map(|previous| key("previous", &previous));
    key("current", &files.seal_key()) + &previous.unwrap_or_default()
}

/// HCL strings escape like JSON's.
fn quoted(path: &Path) -> serde_json::Value {
    serde_json::Value::from(path.to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_names_files_and_variables_instead_of_secrets() {
        let files = Files { dir: "/s/d\"x/bao".into(), owner: None };
        let pki = Pki { cluster: "demo".into(), dir: "/s/demo/pki".into(), owner: None };
        let text = text(&files, &pki);
        for line in [
            r#"  address = "127.0.0.1:0""#,
            r#"  tls_key_file = "/s/demo/pki/bao.key""#,
            r#"  current_key = "file:///s/d\"x/bao/unseal.key""#,
            r#"  max_connect_retries = "1""#,
            "disable_clustering = true",
            r#"    data = { type = "kv", options = { version = "2" } }"#,
            r#"      password = { eval_type = "string", eval_source = "env", env_var = "INITIAL_OPS_PASSWORD" }"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    }
}
