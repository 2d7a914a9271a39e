//! One question to an API server: is it ready? Asked by the gates of kube-apiserver and k3s, which wait for a yes.

use super::{defaults, kubeconfig};
use crate::https::Https;
use http::StatusCode;

/// `Err` says what it answered instead, in an operator's words.
pub(super) async fn ask(https: &Https, port: u16) -> Result<(), String> {
    let url = format!("{}/readyz", kubeconfig::server(port));
    match https.get(&url, defaults::PROBE_ANSWER).await {
        Ok((StatusCode::OK, _)) => Ok(()),
        Ok((status, body)) => Err(format!("readyz {}{}", status.as_u16(), failed_checks(&body))),
        Err(error) => Err(error.to_string()),
    }
}

/// The names of the checks a readyz answer calls failed: `, failing: etcd, poststarthook/...`.
fn failed_checks(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let failed: Vec<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("[-]"))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    if failed.is_empty() { String::new() } else { format!(", failing: {}", failed.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_reads_which_checks_fail() {
        let body = b"[+]ping ok\n[-]etcd failed: reason withheld\n[-]poststarthook/x failed: y\nreadyz check failed\n";
        assert_eq!(failed_checks(body), ", failing: etcd, poststarthook/x");
        assert_eq!(failed_checks(b"Unauthorized"), "");
    }
}
