//! What the cloud controller manager reads, under any bytes: the instances, its kubeconfig, its environment.

use super::config::{CLUSTER, Config, INSTANCES_FILE, TENANT_KUBECONFIG};
use super::snapshot::Snapshot;
use super::{credential, credential_check};
use crate::fuzzing::{assert_one_line, assert_refused_by_name, text};
use crate::names;
use kube::config::Kubeconfig;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use time::OffsetDateTime;

pub fn nodes(bytes: &[u8]) {
    let path = Path::new("/data/nodes.json");
    match Snapshot::parse(bytes, path) {
        Ok(snapshot) => {
            for instance in snapshot.instances() {
                assert!(
                    names::node(instance.name.as_str()).is_ok() && snapshot.knows(instance.name.as_str())
                );
            }
            let written = snapshot.written(path).unwrap_or_default();
            assert_eq!(Snapshot::parse(&written, path).ok(), Some(snapshot));
        }
        Err(refusal) => assert_refused_by_name(&refusal, "nodes.json"),
    }
}

pub fn ccm_kubeconfig(bytes: &[u8]) {
    let path = Path::new("/data/ccm.conf");
    let validity = credential::usable(bytes, "https://127.0.0.1:1", b"", b"", OffsetDateTime::UNIX_EPOCH);
    assert!(validity.is_none(), "no authority signed it");
    let Ok(kubeconfig) = Kubeconfig::from_yaml(&text(bytes)) else { return };
    if let Err(refusal) = credential_check::check_file(path, path, &kubeconfig) {
        assert_refused_by_name(&refusal, "ccm.conf");
    }
}

/// One line for each variable, in the order of their names.
pub fn ccm_environment(bytes: &[u8]) {
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let known = [TENANT_KUBECONFIG, CLUSTER, INSTANCES_FILE];
    let get = |name: &str| {
        let place =
            known.iter().position(|known| *known == name).unwrap_or_else(|| known.len() + name.len() % 3);
        lines.get(place).map(|value| OsString::from_vec(value.to_vec()))
    };
    match Config::from_env(get) {
        Ok(config) => {
            assert!(names::is_label(&config.cluster) && config.kubeconfig.is_absolute());
            assert!(config.max_nodes > 0 && config.pods_per_node > 0 && !config.resync.is_zero());
        }
        Err(refusal) => assert_one_line(&refusal.to_string()),
    }
}
