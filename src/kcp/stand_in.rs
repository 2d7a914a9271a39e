//! The environment of a stand-in for kcp: the API server it serves through, and how it is told to misbehave.
//!
//! `KCP_STANDIN_<KNOB>` in the daemon's own environment reaches both slots' stand-ins, `KCP_STANDIN_SLOT_B_<KNOB>` only
//! slot b's. A real kcp gets none of it.

use berth_actors::identity::SlotName;
use std::collections::BTreeMap;
use std::path::Path;

const PREFIX: &str = "KCP_STANDIN_";
const API_SERVER: &str = "KCP_STANDIN_KUBE_APISERVER";

/// The knobs in the daemon's environment.
pub fn knobs() -> BTreeMap<String, String> {
    let named = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(named).filter(|(name, _)| name.starts_with(PREFIX)).collect()
}

pub(super) fn env(
    slot: SlotName,
    knobs: &BTreeMap<String, String>,
    kube_apiserver: &Path,
) -> BTreeMap<String, String> {
    let only = |slot: SlotName| format!("{PREFIX}SLOT_{}_", slot.to_string().to_uppercase());
    let mut env = BTreeMap::new();
    for (name, value) in knobs {
        if let Some(knob) = name.strip_prefix(&only(slot)) {
            env.insert(format!("{PREFIX}{knob}"), value.clone());
        } else if !name.starts_with(&only(slot.other())) {
            env.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    env.insert(API_SERVER.to_owned(), kube_apiserver.display().to_string());
    env
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knob_reaches_both_slots_unless_it_names_one() {
        let knobs = BTreeMap::from(
            [
                ("KCP_STANDIN_HANG", "1"),
                ("KCP_STANDIN_SLOT_B_HANG", "once"),
                ("KCP_STANDIN_SLOT_A_READY_AFTER", "7"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned())),
        );
        let of = |slot| env(slot, &knobs, Path::new("/k"));
        assert_eq!(of(SlotName::A)["KCP_STANDIN_HANG"], "1");
        assert_eq!(of(SlotName::A)["KCP_STANDIN_READY_AFTER"], "7");
        assert_eq!(of(SlotName::B)["KCP_STANDIN_HANG"], "once");
        assert!(!of(SlotName::B).contains_key("KCP_STANDIN_READY_AFTER"));
        assert_eq!(of(SlotName::B)[API_SERVER], "/k");
    }
}
