//! The services of a file as members of a group, and where their logs lie. Starts nothing.

use super::service::Surroundings;
use super::spec::{self, SpecError};
use crate::layout::Layout;
use berth_actors::group::actor::Member;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

pub(super) struct Estate {
    pub(super) members: Vec<Member>,
    pub(super) logs: HashMap<String, PathBuf>,
}

/// Reads the file and builds one chain per service. Blocking.
pub(super) fn load(file: &Path, layout: &Layout) -> Result<Estate, SpecError> {
    let services = spec::load(file)?;
    let places: HashMap<String, usize> =
        services.iter().enumerate().map(|(place, service)| (service.name.clone(), place)).collect();
    let surroundings = Surroundings {
        layout,
        dir: file.parent().unwrap_or(Path::new("/")),
        path: std::env::var("PATH").ok(),
        passwd: fs::read_to_string("/etc/passwd").unwrap_or_default(),
        is_root: rustix::process::geteuid().is_root(),
    };
    let logs = services.iter().map(|service| (service.name.clone(), surroundings.log(service))).collect();
    let members = services
        .iter()
        .map(|service| {
            let step = surroundings.step(service).map_err(|reason| SpecError::Service {
                path: file.to_owned(),
                service: service.name.clone(),
                reason,
            })?;
            Ok(Member {
                name: service.name.clone(),
                steps: vec![step],
                after: service.after.iter().filter_map(|name| places.get(name).copied()).collect(),
            })
        })
        .collect::<Result<_, SpecError>>()?;
    Ok(Estate { members, logs })
}
