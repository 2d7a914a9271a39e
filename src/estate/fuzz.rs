//! A cluster's record under any bytes: what is taken names a cluster there can be, and the file it came from.

use super::records;
use crate::fuzzing::assert_refused_by_name;
use crate::names;
use berth_actors::host::TenantRecord;
use std::path::{Path, PathBuf};

pub fn cluster_record(bytes: &[u8]) {
    // The name inside decides which file it would be the record of.
    let named = serde_json::from_slice::<TenantRecord>(bytes).map(|record| record.name);
    let path = match &named {
        Ok(name) if !name.contains(|c: char| c == '/' || c.is_control()) => {
            PathBuf::from(format!("/state/clusters/{name}.json"))
        }
        _ => PathBuf::from("/state/clusters/demo.json"),
    };
    match records::parse(bytes, &path) {
        Ok(record) => {
            assert_eq!(path, Path::new("/state/clusters").join(format!("{}.json", record.name)));
            assert_eq!(names::cluster(&record.name), Ok(record.name.clone()));
            let written = serde_json::to_vec_pretty(&record).unwrap_or_default();
            assert_eq!(records::parse(&written, &path).ok(), Some(record));
        }
        Err(refusal) => assert_refused_by_name(&refusal, ".json"),
    }
}
