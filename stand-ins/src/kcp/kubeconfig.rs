//! `admin.kubeconfig` as kcp writes it, and the little reading kcp does at a restart: the shard-admin token.
//!
//! The reader knows the layout client-go writes, not YAML; what it cannot read it refuses in the words kcp uses.

use base64::{Engine, engine::general_purpose::STANDARD};
use std::fmt::Write;

pub(super) const KCP_ADMIN: &str = "kcp-admin";
pub(super) const SHARD_ADMIN: &str = "shard-admin";

/// The whole file. `base_url` without a path; `certificate` is everything in apiserver.crt.
pub(super) fn render(base_url: &str, certificate: &[u8], kcp_admin: &str, shard_admin: &str) -> String {
    let base_url = base_url.trim_end_matches('/');
    let certificate = STANDARD.encode(certificate);
    let mut text = String::from("apiVersion: v1\nclusters:\n");
    for (name, path) in [("base", ""), ("root", "/clusters/root"), ("system:admin", "/clusters/system:admin")]
    {
        let _ = write!(
            text,
            "- cluster:\n    certificate-authority-data: {certificate}\n    server: {base_url}{path}\n  name: {name}\n"
        );
    }
    text.push_str("contexts:\n");
    for (name, cluster, user) in [
        ("base", "base", KCP_ADMIN),
        ("root", "root", KCP_ADMIN),
        ("shard-base", "base", SHARD_ADMIN),
        ("system:admin", "system:admin", SHARD_ADMIN),
    ] {
        let _ = write!(text, "- context:\n    cluster: {cluster}\n    user: {user}\n  name: {name}\n");
    }
    text.push_str("current-context: root\nkind: Config\nusers:\n");
    for (name, token) in [(KCP_ADMIN, kcp_admin), (SHARD_ADMIN, shard_admin)] {
        let _ = write!(text, "- name: {name}\n  user:\n    token: {token}\n");
    }
    text
}

/// The shard-admin token of an existing file; empty where the file has none. The error is the parser's own line.
pub(super) fn shard_admin_token(file: &[u8]) -> Result<String, String> {
    let text = String::from_utf8_lossy(file);
    let mut section = "";
    let mut user = String::new();
    let mut token = String::new();
    let mut found = String::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let entry = line.trim_start().trim_start_matches("- ");
        let (key, value) = key_value(entry).ok_or_else(|| syntax_error(index + 1, entry))?;
        if key == "certificate-authority-data" {
            check_base64(value)?;
        }
        if !line.starts_with([' ', '-']) {
            section = key;
        }
        if section != "users" {
            continue;
        }
        if line.starts_with("- ") {
            user.clear();
            token.clear();
        }
        match key {
            "name" => value.clone_into(&mut user),
            "token" => value.clone_into(&mut token),
            _ => {}
        }
        if user == SHARD_ADMIN && !token.is_empty() {
            found.clone_from(&token);
        }
    }
    Ok(found)
}

fn key_value(entry: &str) -> Option<(&str, &str)> {
    let (key, value) = entry.split_once(':')?;
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let separated = value.is_empty() || value.starts_with(' ');
    (plain && separated).then(|| (key, value.trim().trim_matches('"')))
}

fn syntax_error(line: usize, entry: &str) -> String {
    if entry.starts_with('{') {
        return format!("yaml: line {line}: did not find expected ',' or '}}'");
    }
    format!("yaml: line {line}: could not find expected ':'")
}

/// A file cut in half usually ends inside the certificate; Go names the first byte of the incomplete quartet.
fn check_base64(value: &str) -> Result<(), String> {
    match STANDARD.decode(value) {
        Ok(_) => Ok(()),
        Err(base64::DecodeError::InvalidByte(at, _)) => {
            Err(format!("illegal base64 data at input byte {at}"))
        }
        Err(_) => Err(format!("illegal base64 data at input byte {}", value.len() / 4 * 4)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_read_back_from_what_was_written() {
        let text = render("https://127.0.0.1:6443", b"certificate", "first", "second");
        assert_eq!(shard_admin_token(text.as_bytes()).unwrap(), "second");
        assert!(text.contains("server: https://127.0.0.1:6443/clusters/system:admin\n"));
        assert!(text.contains("current-context: root\n"));
    }

    #[test]
    fn a_file_without_users_has_an_empty_token() {
        assert_eq!(shard_admin_token(b"").unwrap(), "");
        assert_eq!(shard_admin_token(b"apiVersion: v1\nkind: Config\n").unwrap(), "");
    }

    #[test]
    fn what_is_no_kubeconfig_is_refused_as_the_parser_words_it() {
        assert_eq!(
            shard_admin_token(b"{this is: [not yaml").unwrap_err(),
            "yaml: line 1: did not find expected ',' or '}'"
        );
        let whole = render("https://127.0.0.1:6443", &[7; 2700], "first", "second");
        let certificate = whole.find("data: ").unwrap() + "data: ".len();
        assert_eq!(
            shard_admin_token(&whole.as_bytes()[..certificate + 1802]).unwrap_err(),
            "illegal base64 data at input byte 1800"
        );
    }
}
