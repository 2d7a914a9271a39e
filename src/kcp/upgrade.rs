//! Another kcp for the next slot (K8): which file that is, who it says it is, and whether it may have the store.
//!
//! The control API resolves what an operator asks for; the handover stages it. Nothing here runs a kcp but to ask its version.

use crate::assets::{Record, Store, StoreError};
use crate::components::Program;
use crate::kcp::releases::Chosen;
use crate::kcp::{KcpConfig, version};
use crate::off_thread::off_thread;
use berth_actors::handover::Wish;
use berth_actors::identity::SlotName;
use rustix::fs::{Access, access};
use std::path::{Path, PathBuf};

const COMPONENT: &str = "kcp";

/// Why there will be no upgrade.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    #[error("{path}: {reason}")]
    NotAProgram { path: PathBuf, reason: String },
    #[error("{path} does not say which kcp it is: {reason}")]
    Silent { path: PathBuf, reason: String },
    #[error("{reason}: see docs/operations.md, Components and upgrades; --allow-downgrade takes the risk")]
    Downgrade { reason: String },
    #[error("the asset store has no kcp {wanted}; it has {has}; name a file with --path")]
    Unknown { wanted: String, has: String },
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Record(String),
}

/// What an operator may ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Of the asset store.
    Version(String),
    File(PathBuf),
}

/// The wish of a handover to what is `wanted`, or why it would fail.
pub async fn wish(config: &KcpConfig, wanted: Wanted, allow_downgrade: bool) -> Result<Wish, UpgradeError> {
    let program = match wanted {
        Wanted::File(path) => path,
        Wanted::Version(wanted) => {
            let assets = config.layout.assets();
            off_thread(move || of_the_store(&Store::open(&assets)?, &wanted)).await?
        }
    };
    let version = examined(config, &program, allow_downgrade).await?;
    Ok(Wish::Upgrade { version: Some(version), program, allow_downgrade })
}

/// Blocking.
fn of_the_store(store: &Store, wanted: &str) -> Result<PathBuf, UpgradeError> {
    let is_kcp = |record: &&Record| record.component == COMPONENT;
    // As the release is called, or with the Kubernetes it is built of.
    let fits = |version: &str| version == wanted || version.rsplit('-').next() == Some(wanted);
    if let Some(record) = store.records().filter(is_kcp).find(|record| fits(&record.version)) {
        let dir = store.find(&record.key).map_err(|broken| {
            let reason = broken.unwrap_or_else(|| "it is gone".to_owned());
            UpgradeError::NotAProgram { path: store.path(&record.digest), reason }
        })?;
        let program = dir.join(COMPONENT);
        // It is on no record yet.
        store.hold([program.as_path()])?;
        return Ok(program);
    }
    let has: Vec<_> = store.records().filter(is_kcp).map(|record| record.version.as_str()).collect();
    let has = if has.is_empty() { "none".to_owned() } else { has.join(", ") };
    Err(UpgradeError::Unknown { wanted: wanted.to_owned(), has })
}

/// Its version, once it has been found fit.
async fn examined(config: &KcpConfig, program: &Path, allow_downgrade: bool) -> Result<String, UpgradeError> {
    executable(program)?;
    let asked = version::ask(&Program::real(program), config.owner).await;
    let said = asked.map_err(|reason| UpgradeError::Silent { path: program.to_owned(), reason })?;
    if !allow_downgrade {
        let admitted = config.releases.may_start(&said);
        admitted.map_err(|error| UpgradeError::Downgrade { reason: error.to_string() })?;
    }
    Ok(said)
}

/// What an upgrade to `program` would stumble over. Changes nothing.
pub(crate) async fn examine(config: &KcpConfig, program: &Path, allow_downgrade: bool) -> Result<(), String> {
    examined(config, program, allow_downgrade).await.map(drop).map_err(|error| error.to_string())
}

/// Has `slot` run what `wish` asks for from its next start on. Blocking.
pub(crate) fn stage(config: &KcpConfig, slot: SlotName, wish: &Wish) -> Result<(), String> {
    let releases = &config.releases;
    let Wish::Upgrade { version, program, allow_downgrade } = wish else {
        return releases.stage(slot, releases.chosen());
    };
    let version = version.clone().ok_or_else(|| format!("{} has no version", program.display()))?;
    if *allow_downgrade {
        releases.allow(&version)?;
    }
    // The configured one needs nobody to choose it.
    let is_configured = config.program.arg0.is_none() && config.program.path == *program;
    releases.stage(slot, (!is_configured).then(|| Chosen { program: program.clone(), version }))
}

fn executable(program: &Path) -> Result<(), UpgradeError> {
    let bad = |reason: String| UpgradeError::NotAProgram { path: program.to_owned(), reason };
    let meta = program.metadata().map_err(|error| bad(error.to_string()))?;
    if !program.is_absolute() {
        return Err(bad("must be an absolute path: the daemon has another working directory".to_owned()));
    }
    if !meta.is_file() || access(program, Access::EXEC_OK).is_err() {
        return Err(bad("is not a program that can be run".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assets::Recipe;
    use crate::files;
    use crate::kcp::Releases;
    use crate::kcp::slot::test_config;
    use std::os::unix::fs::PermissionsExt;

    const OLD: &str = "v1.36.0+kcp-v0.33.0";
    const NEW: &str = "v1.36.0+kcp-v0.34.0";

    /// A program that says who it is, and nothing else.
    fn kcp(dir: &Path, name: &str, says: &str) -> PathBuf {
        let path = dir.join(name);
        files::write_atomic(&path, format!("#!/bin/sh\necho '{says}'\n").as_bytes(), None).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn config(dir: &Path) -> KcpConfig {
        let config = test_config(dir);
        files::private_dir(&config.layout.kcp(), None).unwrap();
        config.releases.bootstraps(SlotName::A, OLD).unwrap();
        config
    }

    #[tokio::test]
    async fn a_newer_file_is_the_wish_and_an_older_one_only_when_somebody_takes_the_risk() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let new = kcp(dir.path(), "new", &format!("kcp version {NEW}"));
        let wished = wish(&config, Wanted::File(new.clone()), false).await.unwrap();
        assert_eq!(wished, Wish::Upgrade { version: Some(NEW.into()), program: new, allow_downgrade: false });

        config.releases.bootstraps(SlotName::A, NEW).unwrap();
        let old = kcp(dir.path(), "old", &format!("kcp version {OLD}"));
        let error = wish(&config, Wanted::File(old.clone()), false).await.unwrap_err().to_string();
        assert!(error.contains("is older than") && error.contains("--allow-downgrade"), "{error}");
        let wished = wish(&config, Wanted::File(old.clone()), true).await.unwrap();
        stage(&config, SlotName::B, &wished).unwrap();
        assert_eq!(config.program_of(SlotName::B).path, old);
        config.releases.may_start(OLD).unwrap();
        assert_eq!(Releases::open(&config.layout).unwrap().newest().as_deref(), Some(NEW));
    }

    #[tokio::test]
    async fn what_is_no_kcp_or_was_built_without_a_version_is_said_to_be() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let unstamped = kcp(dir.path(), "unstamped", "kcp version v0.0.0-master+$Format:%H$");
        let silent = kcp(dir.path(), "silent", "usage: thing");
        let flat = dir.path().join("flat");
        files::write_atomic(&flat, b"", None).unwrap();
        for (path, words) in [
            (unstamped, "cannot be told: that is no release's version"),
            (silent, "is no kcp"),
            (flat, "is not a program"),
            (dir.path().join("none"), "No such file"),
        ] {
            let error = wish(&config, Wanted::File(path.clone()), false).await.unwrap_err().to_string();
            assert!(error.contains(words), "{}: {error}", path.display());
            assert!(!error.contains('\n'), "{error}");
        }
    }

    #[tokio::test]
    async fn a_version_is_looked_up_in_the_store_and_an_unknown_one_is_answered_with_what_there_is() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let unknown = || async {
            wish(&config, Wanted::Version("v0.99.0".into()), false).await.unwrap_err().to_string()
        };
        assert!(unknown().await.contains("no kcp v0.99.0; it has none"), "{}", unknown().await);
        {
            let store = Store::open(&config.layout.assets()).unwrap();
            let staged = store.stage().unwrap();
            kcp(&staged.tree, "kcp", &format!("kcp version {NEW}"));
            let (component, made_by) = ("kcp".to_owned(), "a test".to_owned());
            let recipe = Recipe { component, version: NEW.into(), key: "k".into(), made_by };
            store.install(&staged, recipe, None).unwrap();
        }
        assert!(unknown().await.contains(&format!("it has {NEW}")), "{}", unknown().await);
        for name in [NEW, "v0.34.0"] {
            let wished = wish(&config, Wanted::Version(name.into()), false).await.unwrap();
            let Wish::Upgrade { version, program, .. } = wished else { panic!("{wished:?}") };
            assert_eq!(version.as_deref(), Some(NEW));
            assert!(
                program.ends_with("kcp") && program.starts_with(config.layout.assets()),
                "{}",
                program.display()
            );
        }
    }
}
