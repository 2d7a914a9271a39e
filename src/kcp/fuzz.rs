//! What kcp's adapter reads, under any bytes: its own state, kcp's kubeconfig, kcp's log and kcp's answers.

use super::election::Election;
use super::kubeconfig::{consumer, shard_admin_token};
use super::readyz::Checks;
use super::session::Status;
use super::start_log::StartLog;
use super::{api, history, journal, watch};
use crate::fuzzing::{assert_one_line, assert_refused_by_name, text};
use std::path::Path;

/// The handover journal, the history, and the election record.
pub fn kcp_state(bytes: &[u8]) {
    let path = Path::new("/state/kcp/handover.json");
    match journal::parse(bytes, path) {
        Ok(record) => {
            let written = journal::written(&record).unwrap_or_default();
            assert_eq!(journal::parse(&written, path), Ok(record));
        }
        Err(refusal) => assert_refused_by_name(&refusal, "handover.json"),
    }
    let path = Path::new("/state/kcp/handovers.jsonl");
    let history = history::parse(bytes, path);
    history.unreadable.iter().for_each(|line| assert_refused_by_name(line, "handovers.jsonl"));
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
    assert_eq!(history.records.len() + history.unreadable.len(), lines);
    let path = Path::new("/state/kcp/election.json");
    match Election::parse(bytes, path) {
        Ok(record) => {
            let written = serde_json::to_vec(&record).unwrap_or_default();
            assert_eq!(Election::parse(&written, path), Ok(record));
        }
        Err(refusal) => assert_refused_by_name(&refusal, "election.json"),
    }
}

/// A token that was found is found again in what consumers get, whatever it is made of.
pub fn kcp_kubeconfig(bytes: &[u8]) {
    match shard_admin_token(bytes) {
        Ok(token) => {
            let handed_out = consumer(6443, bytes, &token);
            assert_eq!(shard_admin_token(handed_out.as_bytes()), Ok(token));
        }
        Err(refusal) => assert_one_line(&refusal.to_string()),
    }
}

pub fn kcp_log(bytes: &[u8]) {
    let text = text(bytes);
    let mut log = StartLog::new(Path::new("/logs/kcp.log"), 0);
    text.lines().for_each(|line| log.hear(line));
    assert!(log.identity.is_none_or(|identity| text.contains(&identity) && !identity.is_empty()));
    let checks = Checks::parse(&text);
    assert!(checks.red.len() + checks.green <= text.lines().count());
    assert!(!checks.look_hung() || checks.red.len() == 3);
    assert_one_line(&checks.to_string());
}

/// The lease, an error's Status, an event of a watch.
pub fn kcp_answers(bytes: &[u8]) {
    let lease = api::parse_lease(bytes);
    let status = serde_json::from_slice::<Status>(bytes).unwrap_or_default();
    let event = serde_json::from_slice::<watch::Event>(bytes);
    assert!(lease.is_none() || event.is_err(), "a lease is no event: {status:?}");
}
