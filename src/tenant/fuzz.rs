//! What a tenant's adapters read, under any bytes: port and uid leases, a postmaster's lock, and the components' logs.

use super::kine::{self, Line};
use super::openbao::login::fatal_line;
use super::ports::Leases;
use super::postgres::leftovers;
use crate::fuzzing::{assert_one_line, assert_refused_by_name, text};
use std::path::Path;

pub fn ports(bytes: &[u8]) {
    let path = Path::new("/state/ports.json");
    match Leases::parse(bytes, path) {
        Ok(leases) => {
            let written = leases.written(path).unwrap_or_default();
            assert_eq!(Leases::parse(&written, path).ok(), Some(leases));
        }
        Err(refusal) => assert_refused_by_name(&refusal, "ports.json"),
    }
    uids(bytes);
}

/// Kept like ports, and told apart by nothing but the file.
fn uids(bytes: &[u8]) {
    let path = Path::new("/state/uids.json");
    match super::uids::Leases::parse(bytes, path) {
        Ok(leases) => {
            let written = leases.written(path).unwrap_or_default();
            assert_eq!(super::uids::Leases::parse(&written, path).ok(), Some(leases));
        }
        Err(refusal) => assert_refused_by_name(&refusal, "uids.json"),
    }
}

pub fn postmaster_lock(bytes: &[u8]) {
    let text = text(bytes);
    for holders in [&[][..], &[1], &[1, 4711]] {
        match leftovers::judge(Some(&text), holders) {
            leftovers::Verdict::Start(leftovers::Lock::Stale(pid)) => assert!(pid >= 0 && holders.is_empty()),
            leftovers::Verdict::Occupied(pid) => assert!(holders.contains(&pid)),
            leftovers::Verdict::Orphans(pids) => assert_eq!(pids, holders),
            _ => assert!(holders.is_empty()),
        }
    }
}

/// kine's lines hold what its clients wrote, so nothing of them may come out again.
pub fn component_logs(bytes: &[u8]) {
    for line in text(bytes).lines() {
        if let Line::Never(code) = kine::judge(line) {
            assert!(["28P01", "28000", "3D000"].contains(&code));
        }
        if let Some(reason) = fatal_line(line) {
            assert_one_line(&reason);
        }
    }
}
