//! Who needs an asset: processes that run from it, daemons that may start it again, and what is configured.
//!
//! Looked up anew for each gc and list, while the store is open. Blocking throughout.

use super::catalogue::{Catalogue, CatalogueError, Source};
use super::gc::Asset;
use super::held;
use super::pins::{self, Pin};
use super::record::{Record, at};
use super::store::{Store, StoreError};
use crate::layout::Layout;
use procfs::process::{Process, all_processes};
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why an asset stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// The lowest of the processes that run from it.
    Runs { pid: i32 },
    /// A daemon may start it again.
    Held,
    /// A process that ran from it is on record, or kcp's next start takes it, or the configuration names it.
    Named { by: &'static str },
    /// A catalogue asks for it.
    Pinned,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runs { pid } => write!(f, "runs (pid {pid})"),
            Self::Held => f.write_str("a daemon may start it"),
            Self::Named { by } => write!(f, "named by {by}"),
            Self::Pinned => f.write_str("in the catalogue"),
        }
    }
}

impl Serialize for Use {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Nobody can say what is needed: then nothing is removed.
#[derive(Debug, thiserror::Error)]
pub enum UsageError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    #[error("{0}")]
    Releases(String),
}

/// What was seen at one moment.
#[derive(Debug, Default)]
pub struct Usage {
    running: BTreeMap<PathBuf, i32>,
    named: BTreeMap<PathBuf, &'static str>,
    keys: Vec<String>,
}

impl Usage {
    /// Looks around for `store`, which is the one of `layout`. `configured` are paths of a configuration, `pins` what the
    /// catalogues ask for.
    pub(super) fn look(
        store: &Store,
        layout: &Layout,
        pins: &[Pin],
        configured: &[PathBuf],
    ) -> Result<Self, UsageError> {
        let mut usage = Self { keys: pins.iter().map(|pin| pin.key.clone()).collect(), ..Self::default() };
        let root = store.assets();
        // As the kernel names what runs there.
        let root = root.canonicalize().map_err(at("resolve", &root)).map_err(StoreError::of)?;
        for (program, pid) in running().map_err(at("read", Path::new("/proc"))).map_err(StoreError::of)? {
            if let Some(asset) = asset_of(&root, &program) {
                let lowest = usage.running.entry(asset).or_insert(pid);
                *lowest = pid.min(*lowest);
            }
        }
        let releases = crate::kcp::Releases::open(layout).map_err(UsageError::Releases)?;
        let recorded = crate::process::programs_on_record(&layout.ledger()).map_err(StoreError::of)?;
        for (by, paths) in [
            ("the configuration", configured.to_vec()),
            ("kcp's releases", releases.programs()),
            ("the ledger", recorded),
            ("the store", store.named()?),
        ] {
            for path in paths {
                // One that is gone needs nothing.
                let Ok(path) = path.canonicalize() else { continue };
                if let Some(asset) = asset_of(&root, &path) {
                    usage.named.insert(asset, by);
                }
            }
        }
        Ok(usage)
    }

    /// Why the asset in `dir` stays, `None` where nobody needs it. `record`: where it has one.
    pub fn of(&self, dir: &Path, record: Option<&Record>) -> Result<Option<Use>, StoreError> {
        let name = dir.file_name().map(PathBuf::from).unwrap_or_default();
        if let Some(pid) = self.running.get(&name) {
            return Ok(Some(Use::Runs { pid: *pid }));
        }
        if dir.is_dir() && held::is_held(dir)? {
            return Ok(Some(Use::Held));
        }
        if let Some(by) = self.named.get(&name) {
            return Ok(Some(Use::Named { by }));
        }
        Ok(record.is_some_and(|record| self.keys.contains(&record.key)).then_some(Use::Pinned))
    }
}

/// Who needs what of `store`, which is the one of `layout`. `configured` are paths of a configuration.
pub fn of(
    store: &Store,
    layout: &Layout,
    catalogue: &Catalogue,
    configured: &[PathBuf],
) -> Result<Usage, UsageError> {
    Usage::look(store, layout, &pins::all(catalogue)?, configured)
}

/// What the catalogue asks for and is in the store in no form, by component and version. What only an operator has is not missed.
pub fn missing(assets: &[Asset], catalogue: &Catalogue) -> Vec<(String, String)> {
    let is_here = |component: &str, version: &str| {
        assets.iter().any(|asset| {
            asset.component.as_deref() == Some(component) && asset.version.as_deref() == Some(version)
        })
    };
    let asked = catalogue.entries().filter(|(_, entry)| !matches!(entry.source, Source::Operator { .. }));
    asked
        .filter(|(component, entry)| !is_here(component, &entry.version))
        .map(|(component, entry)| (component.to_owned(), entry.version.clone()))
        .collect()
}

/// The name of the asset that `path` lies in.
fn asset_of(root: &Path, path: &Path) -> Option<PathBuf> {
    path.strip_prefix(root).ok()?.components().next().map(|name| PathBuf::from(name.as_os_str()))
}

/// The program of every process. Of one that may not be looked into, what it calls itself.
fn running() -> io::Result<Vec<(PathBuf, i32)>> {
    let all = all_processes().map_err(|error| io::Error::other(error.to_string()))?;
    Ok(all.filter_map(|process| program(&process.ok()?)).collect())
}

fn program(process: &Process) -> Option<(PathBuf, i32)> {
    // A kernel thread has none, and one that has just ended needs none.
    let path = match process.exe() {
        Ok(path) => path,
        Err(procfs::ProcError::PermissionDenied(_)) => {
            PathBuf::from(process.cmdline().ok()?.into_iter().next()?)
        }
        Err(_) => return None,
    };
    Some((path, process.pid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_belongs_to_the_asset_it_lies_in() {
        let root = Path::new("/s/assets/sha256");
        assert_eq!(asset_of(root, Path::new("/s/assets/sha256/d/bin/kine (deleted)")), Some("d".into()));
        assert_eq!(asset_of(root, Path::new("/s/assets/sha256")), None);
        assert_eq!(asset_of(root, Path::new("/opt/kine")), None);
    }
}
