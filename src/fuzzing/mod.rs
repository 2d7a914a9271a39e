//! Everything that parses bytes from outside, each as one function that takes any bytes at all.
//!
//! The fuzzer's targets (`fuzz/fuzz_targets/`) call these with the feature `fuzzing`; the tests below replay and mutate the
//! kept corpus, so that a machine without a fuzzer still reaches every parser. A target panics where an invariant breaks:
//! a parser never panics, a refusal names its file and stays on one line, and what Berth writes it reads back the same.
//! Nothing of the daemon calls this; the parsers stay as private as they were.
#![doc(hidden)]

pub use crate::assets::fuzz::{asset_record, catalogue, wheel};
pub use crate::backup::fuzz::backup;
pub use crate::ccm::fuzz::{ccm_environment, ccm_kubeconfig, nodes};
pub use crate::config::fuzz::config;
pub use crate::control::fuzz::{control_answers, control_requests};
pub use crate::discover::fuzz::sock_diag;
pub use crate::estate::fuzz::cluster_record;
pub use crate::front::fuzz::tls_stream;
pub use crate::guard::fuzz::identity;
pub use crate::kcp::fuzz::{kcp_answers, kcp_kubeconfig, kcp_log, kcp_state};
pub use crate::log_line::fuzz::log_lines;
pub use crate::preflight::fuzz::host_tables;
pub use crate::process::fuzz::{ledger, process_tables};
pub use crate::supervise::fuzz::services;
pub use crate::tenant::fuzz::{component_logs, ports, postmaster_lock};
use std::borrow::Cow;
use std::fmt::Display;

#[cfg(test)]
mod tests;

/// One parser under any bytes.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also its corpus's.
pub const TARGETS: [(&str, Target); 26] = [
    ("asset_record", asset_record),
    ("backup", backup),
    ("catalogue", catalogue),
    ("ccm_environment", ccm_environment),
    ("ccm_kubeconfig", ccm_kubeconfig),
    ("cluster_record", cluster_record),
    ("component_logs", component_logs),
    ("config", config),
    ("control_answers", control_answers),
    ("control_requests", control_requests),
    ("host_tables", host_tables),
    ("identity", identity),
    ("kcp_answers", kcp_answers),
    ("kcp_kubeconfig", kcp_kubeconfig),
    ("kcp_log", kcp_log),
    ("kcp_state", kcp_state),
    ("ledger", ledger),
    ("log_lines", log_lines),
    ("nodes", nodes),
    ("ports", ports),
    ("postmaster_lock", postmaster_lock),
    ("process_tables", process_tables),
    ("services", services),
    ("sock_diag", sock_diag),
    ("tls_stream", tls_stream),
    ("wheel", wheel),
];

/// Bytes as the text a reader of lines makes of them.
pub(crate) fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// A refusal goes into a log and to a terminal: it says which file is meant, and nothing in the file may break its line.
pub(crate) fn assert_refused_by_name(refusal: &impl Display, name: &str) {
    let refusal = refusal.to_string();
    assert!(refusal.contains(name), "{name} is not named in: {refusal}");
    assert_one_line(&refusal);
}

pub(crate) fn assert_one_line(refusal: &str) {
    assert!(!refusal.contains(char::is_control), "a refusal of more than one line: {refusal:?}");
}
