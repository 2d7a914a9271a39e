//! The services of a file as members of a group, and where their logs lie. Starts nothing.

use super::files::ServiceFiles;
use super::service::Surroundings;
use super::spec::{self, Spec, SpecError};
use crate::logs::Limits;
use berth_actors::group::actor::Member;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(super) struct Estate {
    pub(super) members: Vec<Member>,
    pub(super) files: ServiceFiles,
    pub(super) limits: Limits,
}

/// Reads the file and builds one chain per service. Blocking.
pub(super) fn load(file: &Path, logs: PathBuf) -> Result<Estate, SpecError> {
    let Spec { services, logs: limits } = spec::load(file)?;
    let places: HashMap<&str, usize> =
        services.iter().enumerate().map(|(place, service)| (service.name.as_str(), place)).collect();
    let surroundings = Surroundings::new(file, logs);
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
                after: service.after.iter().filter_map(|name| places.get(name.as_str()).copied()).collect(),
            })
        })
        .collect::<Result<_, SpecError>>()?;
    let files = ServiceFiles {
        dir: Arc::clone(&surroundings.logs),
        logs: services.iter().map(|service| (service.name.clone(), surroundings.log(service))).collect(),
    };
    Ok(Estate { members, files, limits })
}
